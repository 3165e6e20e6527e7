package spec

import (
	"math"
	"strings"
	"testing"
)

func TestFormulas(t *testing.T) {
	names := map[string]float64{"n": 8, "size": 1e6, "iterations": 3}
	for text, want := range map[string]float64{
		"<= 2":                          2,
		"==2*(n-1)/n*size":              1.75e6,
		"< 40MB":                        40e6,
		">= 4KiB + 1":                   4097,
		"== 1 - 2 - 3":                  -4,
		"== 12 / 2 / 3 * 2":             4,
		"== 1 + 2 * 3":                  7,
		"== ((1 + 2)) * 0.5":            1.5,
		"== iterations*2*(n-1)/n*size ": 5.25e6,
	} {
		op, f, err := ParseFormulaBound(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := f.Value(names); err != nil || got != want || !strings.HasPrefix(text, op) {
			t.Errorf("%s is %s %v, %v; want %v", text, op, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"2":                                   `column 1: "2" is no comparison`,
		"":                                    `column 1: "" is no comparison`,
		"<= ":                                 "column 4: the end where a number belongs",
		"<= 2 3":                              `column 6: "3" after the end of the formula`,
		"<= (1+2":                             "column 8: the end before the closing parenthesis",
		"<= 2*m":                              `column 6: unknown number "m"; want a number such as 3 or`,
		"<= 2**3":                             `column 6: "*" where a number belongs`,
		"<= 1e9":                              `column 4: unknown number "1e9"`,
		"<= -2":                               `column 4: "-" where a number belongs`,
		"<= 2 µ":                              `column 6: "µ" after the end`,
		"<= 1mbit":                            `column 4: unknown number "1mbit"`,
		"<= " + strings.Repeat("(", 60) + "1": "in too many parentheses; want at most 50",
	} {
		if _, _, err := ParseFormulaBound(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	_, f, err := ParseFormulaBound("== 1/(n-8)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Value(names); err == nil || !strings.Contains(err.Error(), "division by zero") {
		t.Errorf("got %v", err)
	}
	if _, err := f.Value(nil); err == nil || !strings.Contains(err.Error(), "n is not known") {
		t.Errorf("got %v", err)
	}
}

// FuzzFormula parses any text. A formula that parses has a finite value or an error.
func FuzzFormula(f *testing.F) {
	for _, text := range []string{"<= 2", "==2*(n-1)/n*size", "< 40MB", "== 1/0", ">=((((1", "== 1.5.5",
		"<"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, formula, wrong := ParseFormulaBound(text)
		if wrong != nil {
			if wrong.At < 0 || wrong.At > len(text) || wrong.What == "" || wrong.Want == "" {
				t.Errorf("%q: %+v", text, wrong)
			}
			return
		}
		v, err := formula.Value(map[string]float64{"n": 4, "size": 100, "iterations": 2})
		if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			t.Errorf("%q is %v", text, v)
		}
	})
}
