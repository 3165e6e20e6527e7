package cli

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"railbed/capture/report"
)

// reportSchema makes a schema of report.json from its Go types and their comments.
func reportSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	t.Chdir("..")
	r := &jsonschema.Reflector{}
	for _, folder := range []string{"capture/report", "internal/verdict", "internal/usage", "plan/perf",
		"capture/verify/evidence"} {
		if err := r.AddGoComments("railbed", "./"+folder, jsonschema.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	return r.Reflect(&report.Report{})
}

// reportPage writes the keys of report.json.
func reportPage(t *testing.T) string {
	s := reportSchema(t)
	t.Chdir("cli")
	p := newPage("report.json", "This page is for programs that read the results of a run, and for their "+
		"authors. `railbed run` writes `report.json` into the directory of results, whatever the outcome. "+
		"[The report of a run](../how-to/read-a-report.md) shows the same data to people.")
	p.prose("The version of the format is `%s`. A new key keeps the version. A key that is removed, or "+
		"whose meaning changes, makes a new version. Durations are in seconds, sizes in bytes and rates in "+
		"bit/s, unless the name or the description says otherwise. Lists are in the order of the file. A "+
		"key that is not required is left out if it is empty.",
		report.Format)
	done := map[string]bool{}
	keys := map[string]map[string]string{}
	keysOf(reflect.TypeFor[report.Report](), keys)
	var write func(name string)
	write = func(name string) {
		definition := s.Definitions[name]
		if done[name] || definition == nil || definition.Properties == nil {
			return
		}
		done[name] = true
		p.line("## %s\n", name)
		if words := strings.Join(strings.Fields(definition.Description), " "); words != "" {
			p.prose("%s", escaped(words))
		}
		p.line("| key | type | meaning |\n|---|---|---|")
		var below []string
		before := "" // the comment above the keys before
		for pair := definition.Properties.Oldest(); pair != nil; pair = pair.Next() {
			words, group := reportType(pair.Value)
			if group != "" {
				below = append(below, group)
				if s.Definitions[group] != nil && s.Definitions[group].Properties != nil {
					words = strings.Replace(words, group, "["+group+"](#"+anchor(group)+")", 1)
				}
			}
			for _, required := range definition.Required {
				if required == pair.Key {
					words += ", required"
				}
			}
			comment := strings.Join(strings.Fields(pair.Value.Description), " ")
			switch {
			case comment == "":
				comment = before
			case strings.HasSuffix(comment, "."): // not a note at the end of the line
				before = comment
			}
			meaning := meaningOf(pair.Key, comment, keys[name])
			if of := s.Definitions[group]; meaning == "" && of != nil {
				meaning, _, _ = strings.Cut(strings.Join(strings.Fields(of.Description), " "), ". ")
				meaning = strings.TrimSuffix(meaning, ".")
			}
			if meaning == "" {
				t.Errorf("%s.%s has no comment", name, pair.Key)
			}
			p.line("| `%s` | %s | %s |", pair.Key, words, escaped(meaning))
		}
		p.line("")
		for _, group := range below {
			write(group)
		}
	}
	write("Report")
	if len(done) < 20 {
		t.Errorf("the report has %d groups of keys; there are more", len(done))
	}
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// keysOf collects, for the types of structs in a type, the keys of their fields by the fields' names.
func keysOf(of reflect.Type, keys map[string]map[string]string) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		keysOf(of.Elem(), keys)
	case reflect.Struct:
		if keys[of.Name()] != nil {
			return
		}
		keys[of.Name()] = map[string]string{}
		for _, field := range reflect.VisibleFields(of) {
			if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); field.IsExported() && key != "" {
				keys[of.Name()][field.Name] = key
			}
			keysOf(field.Type, keys)
		}
	}
}

// capital is a word that may be the name of a field.
var capital = regexp.MustCompile(`\b[A-Z]\w*`)

// meaningOf returns the sentences of a comment that are about a key, with keys in place of fields' names. A
// comment may be about several fields. A sentence is about those with whose names it begins, or else about
// those of the sentence before it. A comment that begins with no field's name is about the key.
func meaningOf(key, comment string, keys map[string]string) string {
	var own []string
	about := true
	for sentence := range strings.SplitAfterSeq(comment, ". ") {
		if subjects := subjectsOf(sentence, keys); len(subjects) > 0 {
			about = subjects[key]
		}
		if about {
			own = append(own, strings.TrimSpace(sentence))
		}
	}
	meaning := strings.Join(own, " ")
	if !strings.HasSuffix(meaning, ".") { // a note at the end of the line
		return meaning
	}
	return capital.ReplaceAllStringFunc(meaning, func(word string) string {
		if key := keys[word]; key != "" {
			return "`" + key + "`"
		}
		return word
	})
}

// subjectsOf returns the keys of the fields with whose names a sentence begins.
func subjectsOf(sentence string, keys map[string]string) map[string]bool {
	subjects := map[string]bool{}
	for word := range strings.FieldsFuncSeq(sentence, func(r rune) bool { return r == ' ' || r == ',' }) {
		if key := keys[word]; key != "" {
			subjects[key] = true
		} else if word != "and" {
			break
		}
	}
	return subjects
}

// reportType returns the type of a value in words, and the group of keys in it, if any.
func reportType(p *jsonschema.Schema) (words, group string) {
	if name, is := strings.CutPrefix(p.Ref, "#/$defs/"); is {
		return name, name
	}
	switch {
	case p.Items != nil:
		words, group = reportType(p.Items)
		return "list of " + words, group
	case p.AdditionalProperties != nil && p.Type == "object":
		if words, group = reportType(p.AdditionalProperties); words != "" {
			return "mapping of names to " + words, group
		}
		return "mapping", ""
	case p.Format == "date-time":
		return "time", ""
	case p.Type != "":
		return p.Type, ""
	}
	text, err := json.Marshal(p)
	if err != nil || string(text) == "true" {
		return "any", ""
	}
	return "value", ""
}
