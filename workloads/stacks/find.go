package stacks

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/internal/verdict"
	"railbed/testbed"
)

// versionTimeout is the time limit for a program to print its version.
const versionTimeout = 20 * time.Second

// installed describes the host's installation of a stack.
type installed struct {
	version string
	// commands maps the first name of each tool to the name under which it was found.
	commands map[string]string
}

// Find returns the version of a stack on the host, whose programs nodes can run. If the stack is
// missing or too old, the error is a verdict.UnsupportedError that says how to install it.
func Find(ctx context.Context, kind string) (version string, err error) {
	a, err := adapterOf(kind)
	if err != nil {
		return "", err
	}
	there, err := a.find(ctx)
	return there.version, err
}

// findIn is find in a container, which has the programs of its image. It does not require all
// tools: a file's own program needs no compiler. The image belongs to the file, so that an image without the
// stack is a mistake of the file and no lack of the host.
func (a adapter) findIn(ctx context.Context, node *testbed.Node) (there installed, err error) {
	there.commands = map[string]string{}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	for _, t := range a.tools {
		for _, name := range t.names {
			if node.Command(ctx, "sh", "-c", `command -v "$1"`, "find", name).Run() == nil {
				there.commands[t.names[0]] = name
				break
			}
		}
	}
	name, found := there.commands[a.version[0]]
	if !found {
		return there, fmt.Errorf("%w: there is no %s in the container of %s; put it into the image",
			testbed.ErrNotFound, a.version[0], node.Name())
	}
	output, err := node.Command(ctx, name, a.version[1:]...).CombinedOutput()
	if err = a.judge(&there, name, output, err); err != nil { // the image is wrong, and not the host
		return there, fmt.Errorf("container of %s: %v", node.Name(), err)
	}
	return there, nil
}

func (a adapter) find(ctx context.Context) (there installed, err error) {
	there.commands = map[string]string{}
	for _, t := range a.tools {
		i := slices.IndexFunc(t.names, func(name string) bool {
			_, err := exec.LookPath(name)
			return err == nil
		})
		if i < 0 {
			return there, a.lacking("there is no " + strings.Join(t.names, " and no "))
		}
		there.commands[t.names[0]] = t.names[i]
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	ask := append([]string{there.commands[a.version[0]]}, a.version[1:]...)
	output, err := exec.CommandContext(ctx, ask[0], ask[1:]...).CombinedOutput()
	err = a.judge(&there, strings.Join(ask, " "), output, err)
	return there, err
}

// judge parses the version in a program's output.
func (a adapter) judge(there *installed, program string, output []byte, err error) error {
	parts := regexp.MustCompile(a.says + `([0-9]+(?:\.[0-9]+)*)`).FindSubmatch(output)
	if parts == nil && err != nil {
		return a.lacking(fmt.Sprintf("%s printed no version number (%v)", program, err))
	}
	if parts == nil {
		return a.lacking(program + " printed no version number")
	}
	if there.version = string(parts[1]); older(there.version, a.least) {
		return a.lacking(fmt.Sprintf("version %s is too old, want %s or later", there.version, a.least))
	}
	return nil
}

// lacking returns the error for a host without the stack.
func (a adapter) lacking(reason string) error {
	line := "apt-get install --no-install-recommends"
	for _, t := range a.tools {
		if !strings.Contains(line+" ", " "+t.debian+" ") {
			line += " " + t.debian
		}
	}
	return &verdict.UnsupportedError{Feature: a.kind, Reason: reason, Remedy: line}
}

// older compares versions number by number.
func older(version, than string) bool {
	return slices.Compare(numbers(version), numbers(than)) < 0
}

func numbers(version string) (all []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part) // digits, as they were found
		all = append(all, n)
	}
	return all
}
