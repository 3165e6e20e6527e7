package nodes_test

import (
	"slices"
	"testing"

	"railbed/nodes"
	"railbed/plan"
	"railbed/testkit/hosttest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

// TestPath checks which PATH a command gets, by the entries of the file and of the command.
func TestPath(t *testing.T) {
	const usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, c := range []struct {
		name, file, programs string
		extra                []string
		want                 string
	}{
		{"the node's", "", nodes.ProgramDir, nil, "/run/.railbed:" + usual},
		{"the file's", "/opt/bin", nodes.ProgramDir, nil, "/run/.railbed:/opt/bin"},
		{"the command's", "/opt/bin", nodes.ProgramDir, []string{"PATH=/bin"}, "/bin"},
		{"without the executable", "", "", nil, usual},
	} {
		config := nodes.Config{Node: plan.Node{Name: "h0"}}
		if c.file != "" {
			config.Node.Env = map[string]string{"PATH": c.file}
		}
		if got := nodes.Environment(config, c.programs, c.extra); !slices.Contains(got, "PATH="+c.want) {
			t.Errorf("%s: %q, want PATH %s", c.name, got, c.want)
		}
	}
}
