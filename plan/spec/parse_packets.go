package spec

import (
	"fmt"
	"strings"
)

// PacketsPath is the path of a check that ParsePacketsCheck parsed.
const PacketsPath = "packets"

// ParsePacketsCheck parses a check as it is written in files, such as "drops: {reason: tail, count:
// \">= 1\"}". Errors are Problems and call the text by the given name. The Source has the positions
// in the text. If workloads are given, the check must name one of them. Otherwise a workload that
// the check names need not exist. Package plan checks nodes, switches and ports.
func ParsePacketsCheck(name, text string, workloads ...string) (*PacketsCheck, *Source, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil, Problems{{File: name, What: "is empty",
			Want: "want one of " + strings.Join(packetChecks, ", ")}}
	}
	check := new(PacketsCheck)
	source, err := parsePart(name, []byte(text), PacketsPath, check, workloads, func(c *checker) {
		c.packets(PacketsPath, check)
	})
	if err != nil {
		return nil, nil, err
	}
	return check, source, nil
}

// rulesFile is a file of checks of packets.
type rulesFile struct {
	Rules []PacketsCheck `yaml:"rules" json:"rules"`
}

// RulesPath returns the path of a check that ParseRules parsed.
func RulesPath(index int) string { return fmt.Sprintf("rules[%d]", index) }

// ParseRules parses a file with a list of checks of packets below the key "rules". Each of them is
// written as below "packets:" in a testbed's file. The rest is as in ParsePacketsCheck.
func ParseRules(name string, text []byte, workloads ...string) ([]PacketsCheck, *Source, error) {
	file := new(rulesFile)
	source, err := parsePart(name, text, "", file, workloads, func(c *checker) {
		for i := range file.Rules {
			c.packets(RulesPath(i), &file.Rules[i])
		}
		if len(file.Rules) == 0 {
			c.Report("rules", "the file has no rules", `write rules: with a list such as `+
				`- rule: {never: 'railbed.verdict == "drop"'}`)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return file.Rules, source, nil
}

// parsePart decodes a text that is a part of a testbed's file, and checks it.
func parsePart(name string, text []byte, path string, into any, workloads []string,
	check func(*checker)) (*Source, error) {
	d, err := decodePart(name, text, path, into)
	if err != nil {
		return nil, err
	}
	d.Wrong["steps"] = len(workloads) == 0 // without workloads, checks of their names are skipped
	c := newChecker(&Testbed{Source: d.Source}, d.Wrong)
	c.named, c.runs = workloads, workloads
	for _, workload := range workloads {
		c.workloads[workload] = true
	}
	c.Tags(path, into)
	check(c)
	if err := append(d.Problems, c.Problems...).Err(); err != nil {
		return nil, err
	}
	return d.Source, nil
}
