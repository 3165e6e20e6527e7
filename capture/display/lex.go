package display

import (
	"strconv"
	"strings"
)

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // a field, a word or an unquoted literal
	tokenString           // text is without the quotes
	tokenSign             // an operator, a bracket or a comma
)

type token struct {
	kind tokenKind
	text string
	at   int // offset in the filter
}

// signs are the operators and brackets, longer ones first.
var signs = []string{"===", "!==", "==", "!=", "~=", ">=", "<=", "&&", "||", "..", ">", "<", "!", "(", ")",
	"{", "}", "[", "]", ","}

// isWordByte reports whether a byte can be part of a field or an unquoted literal. Words contain dots,
// colons and slashes, as addresses do.
func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
		c == '.' || c == ':' || c == '/' || c == '-' || c == '_'
}

// lex divides the filter into tokens.
func (p *parser) lex() error {
	for at := 0; at < len(p.text); {
		rest := p.text[at:]
		switch c := rest[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			at++
		case c == '"':
			end := 1
			for end < len(rest) && rest[end] != '"' {
				if rest[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(rest) {
				return p.wrong(token{at: at}, "a string that does not end", `a quote (") at its end`)
			}
			text, err := strconv.Unquote(rest[:end+1])
			if err != nil {
				return p.wrong(token{at: at}, "a string that cannot be read: "+rest[:end+1],
					`the escapes \" \\ \n \r \t or \xHH`)
			}
			p.tokens = append(p.tokens, token{tokenString, text, at})
			at += end + 1
		case isWordByte(c) && !strings.HasPrefix(rest, ".."):
			end := 1
			for end < len(rest) && isWordByte(rest[end]) && !strings.HasPrefix(rest[end:], "..") {
				end++
			}
			p.tokens = append(p.tokens, token{tokenWord, rest[:end], at})
			at += end
		default:
			sign := signAt(rest)
			if sign == "" {
				return p.wrong(token{at: at}, "the character "+strconv.QuoteRune([]rune(rest)[0]),
					"a field, a value or an operator")
			}
			p.tokens = append(p.tokens, token{tokenSign, sign, at})
			at += len(sign)
		}
	}
	p.tokens = append(p.tokens, token{tokenEnd, "", len(p.text)})
	return nil
}

func signAt(text string) string {
	for _, sign := range signs {
		if strings.HasPrefix(text, sign) {
			return sign
		}
	}
	return ""
}
