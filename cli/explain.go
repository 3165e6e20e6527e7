package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"railbed/capture/verify"
	"railbed/plan/spec/keys"
)

// explainWidth is the width of a terminal for which explanations are written.
const explainWidth = 80

// explained is a key with its keys, as -o json prints it.
type explained struct {
	*keys.Key
	Example string `json:"example,omitempty"`
	// Findings are a check's findings in runs that pass it and in runs that break it.
	Findings []verify.Judged `json:"findings,omitempty"`
	Fields   []explained     `json:"fields,omitempty"`
}

func newExplainCommand(a *app) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "explain [KEY]",
		Short: "Describe a key of testbed files: type, unit, default, example and its own keys",
		Long: `Explain describes a key of testbed files. KEY is a path such as
checks.packets.roce. The path may begin below the root, as in links.loss, if this names
one key. Without KEY, explain describes the file.`,
		Example: `  railbed explain fabric.links.loss
  railbed explain checks.packets.roce
  railbed explain steps.workload --recursive`,
		Args: rangeArgs(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			key, err := keys.Find(strings.Join(args, ""))
			if err != nil {
				return usage("explain: %w", err)
			}
			if a.output == "json" {
				return a.printJSON(explanation(key, recursive, 0))
			}
			a.explain(key, recursive)
			return nil
		},
		ValidArgsFunction: completeKeys,
	}
	cmd.Flags().BoolVar(&recursive, "recursive", false, "list the keys below the key, too")
	return cmd
}

// completeKeys completes one part of a path.
func completeKeys(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	before := ""
	if i := strings.LastIndex(typed, "."); i >= 0 {
		before = typed[:i+1]
	}
	parent, err := keys.Find(before)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, f := range parent.Fields() {
		words = append(words, before+f.Name()+"\t"+f.Summary())
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func explanation(key *keys.Key, recursive bool, depth int) explained {
	made := explained{Key: key, Example: key.Example(), Findings: judgedBy(key)}
	if depth > 0 && !recursive {
		return made
	}
	for _, f := range key.Fields() {
		made.Fields = append(made.Fields, explanation(f, recursive, depth+1))
	}
	return made
}

// explain prints a key.
func (a *app) explain(key *keys.Key, recursive bool) {
	if key.Path != "" {
		a.show("KEY:      %s", key.Path)
		a.explainList("TYPE:     ", typeWords(key))
		a.explainList("UNIT:     ", key.Unit)
		a.explainList("DEFAULT:  ", defaultWords(key))
		a.explainList("SINCE:    ", key.Since)
		a.explainList("ALSO:     ", strings.Join(key.Also, ", "))
		fmt.Fprintln(a.stdout)
	}
	a.show("DESCRIPTION:")
	for _, paragraph := range key.Paragraphs() {
		a.explainList("  ", paragraph)
	}
	if example := key.Example(); example != "" {
		a.heading("EXAMPLE:")
		for line := range strings.Lines(example) {
			a.show("  %s", strings.TrimRight(line, "\n"))
		}
	}
	a.explainFindings(judgedBy(key))
	if fields := key.Fields(); len(fields) > 0 {
		a.heading("KEYS:")
		if recursive {
			a.explainTree(fields, "  ")
		} else {
			a.explainTable(fields)
		}
	}
}

// explainFindings prints the findings of a check in runs that pass it and in runs that break it.
func (a *app) explainFindings(found []verify.Judged) {
	if len(found) == 0 {
		return
	}
	a.heading("FINDINGS:")
	for _, one := range found {
		a.explainList("  ", one.Check)
		a.explainList("    PASS  ", one.Pass)
		a.explainList("    FAIL  ", one.Fail)
		if one.Detail != one.Fail {
			a.explainList("          ", one.Detail)
		}
	}
}

// heading prints a line after an empty line.
func (a *app) heading(line string) {
	fmt.Fprintln(a.stdout)
	a.show("%s", line)
}

// explainList prints text after a label, within the width. Further lines stand below the text.
func (a *app) explainList(label, words string) {
	words = strings.Join(strings.Fields(words), " ")
	if words == "" {
		return
	}
	indent := strings.Repeat(" ", len(label))
	if strings.HasPrefix(words, "- ") {
		indent += "  "
	}
	for i, line := range strings.Split(text.WrapSoft(words, explainWidth-len(indent)), "\n") {
		if i > 0 {
			label = indent
		}
		a.show("%s%s", label, strings.TrimSpace(line))
	}
}

// explainTable prints a line for each key. Further lines of a summary stand below the summary.
func (a *app) explainTable(fields []*keys.Key) {
	nameWidth, typeWidth := 0, 0
	for _, f := range fields {
		nameWidth, typeWidth = max(nameWidth, len(f.Name())+1), max(typeWidth, len(shortType(f)))
	}
	for _, f := range fields {
		name := f.Name()
		if f.Required {
			name += "*"
		}
		a.explainList(fmt.Sprintf("  %-*s  %-*s  ", nameWidth, name, typeWidth, shortType(f)), f.Summary())
	}
	a.heading("* required; railbed explain KEY describes a key, --recursive lists all")
}

// explainTree prints the keys below each other.
func (a *app) explainTree(fields []*keys.Key, indent string) {
	for _, f := range fields {
		words := shortType(f)
		if f.Required {
			words += ", required"
		}
		a.show("%s%s  <%s>", indent, f.Name(), words)
		a.explainTree(f.Fields(), indent+"  ")
	}
}

// typeWords describes the type with its values or its range.
func typeWords(key *keys.Key) string {
	words := key.Type
	switch {
	case len(key.Values) > 0:
		words += ": " + strings.Join(key.Values, ", ")
	case key.Range != "":
		words += ", " + key.Range
	}
	return words
}

// choicesListed bounds the keys that the default of a choice names.
const choicesListed = 4

func defaultWords(key *keys.Key) string {
	switch {
	case key.Required:
		return "none; the key is required"
	case key.Choice:
		all := key.Alternatives()
		if len(all) <= choicesListed {
			last := len(all) - 1
			return fmt.Sprintf("none; exactly one of %s and %s is set", strings.Join(all[:last], ", "),
				all[last])
		}
		return fmt.Sprintf("none; exactly one of %s and the %d keys beside it is set", key.Name(), len(all)-1)
	}
	return key.Default
}

// shortType is the type without the types of elements, for tables.
func shortType(key *keys.Key) string {
	words, _, _ := strings.Cut(key.Type, " of names")
	words, _, _ = strings.Cut(words, " or ")
	return words
}
