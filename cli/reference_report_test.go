package cli

import (
	"encoding/json"
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
	for _, folder := range []string{"capture/report", "internal/verdict", "plan/perf",
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
		"[The page of a run](../how-to/read-a-report.md) shows the same data to people.")
	p.prose("The version of the format is `%s`. A new key keeps the version. A key that is removed, or "+
		"whose meaning changes, makes a new version. Durations are in seconds, sizes in bytes and rates in "+
		"bit/s, unless the name or the description says otherwise. Lists are in the order of the file. A "+
		"key that is not required is left out if it is empty. The names of "+
		"keys without a description explain them.",
		report.Format)
	done := map[string]bool{}
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
			meaning := strings.Join(strings.Fields(pair.Value.Description), " ")
			if meaning == "" {
				meaning = meaningOf(pair.Key, group, before, s)
			} else if strings.HasSuffix(meaning, ".") { // not a note at the end of the line
				before = meaning
			}
			p.line("| `%s` | %s | %s |", pair.Key, words, escaped(asKey(meaning, pair.Key)))
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

// meaningOf finds the meaning of a key without a comment of its own. It is a sentence in the comment above
// the keys before it, or the comment of its type.
func meaningOf(key, group, before string, s *jsonschema.Schema) string {
	for sentence := range strings.SplitAfterSeq(before, ". ") {
		subject, _, _ := strings.Cut(strings.ReplaceAll(sentence, " is ", " are "), " are ")
		for word := range strings.FieldsFuncSeq(subject, func(r rune) bool { return r == ' ' || r == ',' }) {
			if strings.EqualFold(word, strings.ReplaceAll(key, "_", "")) {
				return strings.TrimSpace(sentence)
			}
		}
	}
	if definition := s.Definitions[group]; definition != nil {
		first, _, _ := strings.Cut(strings.Join(strings.Fields(definition.Description), " "), ". ")
		return strings.TrimSuffix(first, ".")
	}
	return ""
}

// asKey writes a key in place of the name of its Go field, with which a sentence begins.
func asKey(sentence, key string) string {
	first, rest, found := strings.Cut(sentence, " ")
	if found && first != key && strings.EqualFold(first, strings.ReplaceAll(key, "_", "")) {
		return key + " " + rest
	}
	return sentence
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
