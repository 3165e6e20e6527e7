package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testbed"
)

const (
	// exitNotFound is a shell's exit code for a program that does not exist.
	exitNotFound = 127
	// findTimeout bounds the search for a program in a node, which may hang.
	findTimeout = 5 * time.Second
)

// missingError is the error of a step whose program a node lacks. Such a step tested nothing, and so it fails
// even if the file expects that it fails.
type missingError struct {
	command string
	error
}

func (e *missingError) Error() string {
	if strings.Contains(e.command, "/") {
		return e.error.Error()
	}
	return fmt.Sprintf("%v; if a host may lack the program, name it in requires", e.error)
}

func (e *missingError) Unwrap() error { return e.error }

// explain finds out whether a command failed because a node lacks a program. If the command names a program
// that the file requires and the node does not have, the host lacks a feature. Otherwise a missing program is
// a mistake of the file, and the error is a missingError.
func (s *session) explain(ctx context.Context, command []string, workdir string, nodes []string,
	err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, program := range s.file.Requires {
		if !spec.Names(command, program) {
			continue
		}
		lacks := func(n string) bool { return s.lacks(ctx, n, workdir, program) }
		if at := slices.IndexFunc(nodes, lacks); at >= 0 {
			return &verdict.UnsupportedError{Feature: program, Reason: fmt.Sprintf("%s lacks it: %v",
				nodes[at], err),
				Remedy: "install the program where the node finds its files: on this host, or " +
					"in the container's image"}
		}
	}
	if notFound(err) {
		return &missingError{strings.Join(command[:min(1, len(command))], ""), err}
	}
	return err
}

// notFound reports whether a command did not exist, by the error of its start or a shell's exit code.
func notFound(err error) bool {
	var exit *testbed.ExitError
	return errors.Is(err, testbed.ErrNotFound) || errors.As(err, &exit) && exit.Code == exitNotFound
}

// explainStack is explain for the program of a user that a launcher starts in all nodes. Launchers have exit
// codes of their own for a program that they do not find.
func (s *session) explainStack(ctx context.Context, command []string, nodes []string, err error) error {
	explained := s.explain(ctx, command, "", nodes, err)
	if explained != err || err == nil || len(command) == 0 || ctx.Err() != nil {
		return explained
	}
	lacks := func(n string) bool { return s.lacks(ctx, n, "", command[0]) }
	if at := slices.IndexFunc(nodes, lacks); at >= 0 {
		return &missingError{command[0], fmt.Errorf("%s has no program %s: %w", nodes[at], command[0], err)}
	}
	return err
}

// lacks reports whether a node is found to lack a program, which may be relative to a step's directory.
func (s *session) lacks(ctx context.Context, node, given, program string) bool {
	ctx, done := context.WithTimeout(ctx, findTimeout)
	defer done()
	var exit *testbed.ExitError
	cmd := s.testbed.Node(node).Command(ctx, "sh", "-c", `command -v "$1"`, "find", program)
	cmd.Dir, _ = workdir(s.plan, s.path, node, given)
	err := cmd.Run()
	return ctx.Err() == nil && errors.As(err, &exit) && exit.Signal == 0
}
