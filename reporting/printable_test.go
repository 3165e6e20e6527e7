package reporting

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"railbed/capture/report"
)

// hostile is text that a third-party program may print, or the name of a capture.
const hostile = "x\x1b[2J\x1b]0;t\x07\u009b31m\u202e\x00\x7f\xff\r\nPASS\nFAIL"

// fill sets every text of a value.
func fill(v reflect.Value, text string) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1e9, 0)))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), text)
			}
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), text)
		fill(v.Index(1), text)
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text)
		fill(value, text)
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(1)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	}
}

// TestHostileTexts puts a hostile text into each text field of a report. No control character may
// reach a terminal or a file that people print, and no line may look like one of Railbed's
// verdicts.
func TestHostileTexts(t *testing.T) {
	for _, state := range []report.State{report.Passed, report.Failed, report.Skipped, report.Cancelled} {
		var r report.Report
		fill(reflect.ValueOf(&r).Elem(), hostile)
		for i := range r.Steps {
			r.Steps[i].State = state
		}
		var text, page, cases, document bytes.Buffer
		err := errors.Join(WriteText(&text, &r, TextOptions{Dir: "results"}), WriteHTML(&page, &r,
			HTMLOptions{}),
			WriteJUnit(&cases, &r), r.WriteJSON(&document))
		if err != nil {
			t.Fatal(err)
		}
		for name, written := range map[string]string{"text": text.String(), "page": page.String(),
			"cases": cases.String(), "document": document.String()} {
			if !utf8.ValidString(written) {
				t.Errorf("%s is not UTF-8", name)
			}
			for i, line := range strings.Split(written, "\n") {
				if strings.ContainsFunc(line, func(r rune) bool {
					return r != '\t' && !unicode.IsPrint(r) && !unicode.IsSpace(r)
				}) {
					t.Errorf("%s, line %d: %q", name, i+1, line)
				}
				if name == "text" && (strings.HasPrefix(line, "PASS") || strings.HasPrefix(line, "FAIL")) {
					t.Errorf("%s, line %d, is forged: %q", name, i+1, line)
				}
			}
		}
		for decoder := xml.NewDecoder(&cases); ; {
			if _, err := decoder.Token(); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("junit.xml: %v", err)
				}
				break
			}
		}
		var back report.Report
		if err := json.Unmarshal(document.Bytes(), &back); err != nil {
			t.Errorf("report.json: %v", err)
		} else if want := strings.ToValidUTF8(hostile, "\ufffd"); back.Name != want {
			t.Errorf("report.json has the name %q, want %q", back.Name, want)
		}
	}
}
