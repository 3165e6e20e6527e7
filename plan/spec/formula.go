package spec

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/printable"
	"railbed/internal/units"
)

// FormulaNames are the numbers of a workload that formulas can use.
var FormulaNames = []string{"n", "size", "iterations"}

// Formula is an arithmetic expression over the numbers of a workload.
type Formula struct {
	text  string
	value func(names map[string]float64) float64
	names []string
}

// TextError is an error within a text: at a byte of it, from 0 on.
type TextError struct {
	At         int
	What, Want string
}

// Error implements error.
func (e *TextError) Error() string {
	return fmt.Sprintf("column %d: %s; want %s", e.At+1, e.What, e.Want)
}

// ParseFormulaBound parses a comparison with a formula, such as "== 2*(n-1)/n*size".
func ParseFormulaBound(text string) (op string, f *Formula, err *TextError) {
	for _, op := range []string{">=", "<=", "==", ">", "<"} {
		if !strings.HasPrefix(text, op) {
			continue
		}
		p := &formulaParser{text: text, at: len(op)}
		value, err := p.sum()
		if err == nil && p.peek() != 0 {
			err = p.wrong("after the end of the formula", "an operator: + - * /")
		}
		return op, &Formula{text, value, p.names}, err
	}
	return "", nil, &TextError{0, fmt.Sprintf("%q is no comparison", printable.Clip(text)),
		`>=, >, <=, < or == and a number or formula, as in "<= 2"`}
}

// Names returns the numbers of a workload that the formula uses.
func (f *Formula) Names() []string { return f.names }

// Value computes the formula.
func (f *Formula) Value(names map[string]float64) (float64, error) {
	for _, name := range f.names {
		if _, known := names[name]; !known {
			return 0, fmt.Errorf("formula %q: %s is not known", f.text, name)
		}
	}
	if v := f.value(names); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return v, nil
	}
	return 0, fmt.Errorf("formula %q: %w", f.text, errors.New("division by zero"))
}

// NewBound makes a bound. String returns the text.
func NewBound(op string, limit float64, text string) Bound { return Bound{op, limit, text} }

// formulaParser reads a formula by recursive descent.
type formulaParser struct {
	text  string
	at    int
	depth int
	names []string
}

type term = func(names map[string]float64) float64

// peek returns the next byte that is no space, or 0.
func (p *formulaParser) peek() byte {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *formulaParser) wrong(what, want string) *TextError {
	found := "the end"
	if c := p.peek(); c != 0 {
		found = strconv.Quote(string([]rune(p.text[p.at:])[:1]))
	}
	return &TextError{p.at, found + " " + what, want}
}

func (p *formulaParser) sum() (term, *TextError) {
	left, err := p.product()
	for err == nil {
		op := p.peek()
		if op != '+' && op != '-' {
			break
		}
		p.at++
		var right term
		if right, err = p.product(); err == nil {
			a, b := left, right
			if left = func(n map[string]float64) float64 { return a(n) + b(n) }; op == '-' {
				left = func(n map[string]float64) float64 { return a(n) - b(n) }
			}
		}
	}
	return left, err
}

func (p *formulaParser) product() (term, *TextError) {
	left, err := p.factor()
	for err == nil {
		op := p.peek()
		if op != '*' && op != '/' {
			break
		}
		p.at++
		var right term
		if right, err = p.factor(); err == nil {
			a, b := left, right
			if left = func(n map[string]float64) float64 { return a(n) * b(n) }; op == '/' {
				left = func(n map[string]float64) float64 { return a(n) / b(n) }
			}
		}
	}
	return left, err
}

// maxFormulaDepth bounds the nesting of parentheses.
const maxFormulaDepth = 50

func (p *formulaParser) factor() (term, *TextError) {
	const want = "a number such as 3 or 40MB, or one of n, size and iterations"
	c := p.peek()
	from := p.at
	for p.at < len(p.text) && isFormulaWord(p.text[p.at]) {
		p.at++
	}
	word := p.text[from:p.at]
	switch {
	case c == '(':
		if p.depth++; p.depth > maxFormulaDepth {
			return nil, p.wrong("in too many parentheses", fmt.Sprintf("at most %d", maxFormulaDepth))
		}
		p.at++
		inner, err := p.sum()
		if err == nil && p.peek() != ')' {
			err = p.wrong("before the closing parenthesis", `")"`)
		}
		p.at++
		p.depth--
		return inner, err
	case word == "":
		return nil, p.wrong("where a number belongs", want)
	case slices.Contains(FormulaNames, word):
		if !slices.Contains(p.names, word) {
			p.names = append(p.names, word)
		}
		return func(n map[string]float64) float64 { return n[word] }, nil
	}
	v, err := strconv.ParseFloat(word, 64)
	if err != nil || strings.ContainsAny(word, "eExXpP_") {
		size, sizeErr := units.ParseBytes(word)
		if v, err = float64(size), sizeErr; err != nil {
			return nil, &TextError{from, fmt.Sprintf("unknown number %q", printable.Clip(word)), want}
		}
	}
	return func(map[string]float64) float64 { return v }, nil
}

func isFormulaWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '_'
}
