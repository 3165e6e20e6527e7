// Package plural formats counts with their nouns, for texts that people read: "1 switch", "2 switches".
package plural

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// counted finds a verb for an integer, the noun in the plural that it counts, perhaps behind an attribute,
// and a verb that follows. Words that end in ss, such as "less", are no plurals.
var counted = regexp.MustCompile(`(%%)|%(?:d|[^%a-zA-Z]*[a-zA-Z])` +
	`(?: (?:` + attributes + `)\b)?( [A-Za-z]*[^\WsS_]s\b)?( (?:are|were|have|do|match)\b)?`)

const attributes = `more|other|queue|partial|link|PFC|ECN-capable|trimmed|late|failed|canceled|empty`

// singular has the words that do not just lose an ending.
var singular = map[string]string{
	"are": "is", "were": "was", "have": "has", "do": "does", "match": "matches",
	"is": "is", "was": "was", "has": "has", "as": "as",
	"its": "its", "this": "this", "series": "series", "ns": "ns", "us": "us", "ms": "ms",
}

// Text is fmt.Sprintf, except that a noun directly behind %d becomes the singular if the number is 1. The
// format has the plural: "%d packets of %d ranks". The same applies to the verbs are, were, have, do and
// match behind the noun, or behind %d. One of a few attributes may stand before the noun, as in "%d more
// packets". Operands do not change. The format has no explicit indexes of operands.
func Text(format string, operands ...any) string {
	if false {
		_ = fmt.Sprintf(format, operands...) // so that go vet checks the calls
	}
	at := -1
	return fmt.Sprintf(counted.ReplaceAllStringFunc(format, func(found string) string {
		if found == "%%" {
			return found
		}
		at++
		if !strings.HasPrefix(found, "%d") || at >= len(operands) || !one(operands[at]) {
			return found
		}
		words := strings.Split(found, " ")
		for i := 1; i < len(words); i++ {
			words[i] = singularOf(words[i])
		}
		return strings.Join(words, " ")
	}), operands...)
}

// Count returns a number of things, named in the plural: Count(1, "switches") is "1 switch".
func Count[N int | int64 | uint64](n N, things string) string { return Text("%d "+things, n) }

func one(n any) bool {
	v := reflect.ValueOf(n)
	return v.CanInt() && v.Int() == 1 || v.CanUint() && v.Uint() == 1
}

func singularOf(word string) string {
	if known, is := singular[word]; is {
		return known
	}
	for _, ending := range []struct{ plural, singular string }{
		{"ies", "y"}, {"ches", "ch"}, {"shes", "sh"}, {"sses", "ss"}, {"xes", "x"}, {"s", ""},
	} {
		if stem, is := strings.CutSuffix(word, ending.plural); is {
			return stem + ending.singular
		}
	}
	return word
}
