package stacks

import (
	"io"
	"testing"

	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// Links that a program of a node planted where a stack puts its files are replaced: nothing
// is written through them.
func TestPlantedLinksAreReplaced(t *testing.T) {
	hosttest.Need(t, hosttest.OpenMPI)
	tb := up(t)
	// protected_symlinks (proc(5)) keeps root from following links of other users in such a
	// directory, and it is off on some hosts: these links are root's.
	const plant = `mkdir /run/v && for f in railbed-mpi railbed-mpi.c railbed-beat.0; do echo mine > /run/v/$f; ln -s /run/v/$f /tmp/$f; done`
	if err := tb.Node("h0").Command(t.Context(), "sh", "-c", plant).Run(); err != nil {
		t.Fatal(err)
	}
	job := Job{
		Step: &spec.Stack{Name: "planted", Kind: spec.OpenMPI, Test: spec.AllReduce, Size: 64, Iterations: 1},
		Plan: tb.Plan(), Log: func(string) (io.Writer, io.Writer, error) {
			return t.Output(), t.Output(), nil
		},
	}
	for i := range job.Plan.Nodes {
		job.Nodes = append(job.Nodes, &job.Plan.Nodes[i])
	}
	if _, err := Run(t.Context(), tb, job); err != nil {
		t.Fatal(err)
	}
	said, err := tb.Node("h0").Command(t.Context(), "sh", "-c", "cat /run/v/*; ls -l /tmp").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(said[:min(len(said), 15)]), "mine\nmine\nmine\n"; got != want {
		t.Errorf("files behind the links: %s", said)
	}
}
