// List prints the runs of a pass of make test, each as a line of arguments of go test. Run it in the folder
// of the module:
//
//	go run ./testkit/hosttest/passes/list root -race
package main

import (
	"fmt"
	"os"
	"strings"

	"railbed/testkit/hosttest/passes"
)

func main() {
	if err := list(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "passes/list:", err)
		os.Exit(1)
	}
}

func list(args []string) error {
	if len(args) < 1 || len(args) > 2 || len(args) == 2 && args[1] != "-race" {
		return fmt.Errorf("arguments %q; want one of %s, and -race or nothing", args,
			strings.Join(passes.Names, ", "))
	}
	packages, err := passes.Read(".")
	if err != nil {
		return err
	}
	runs, err := passes.Divide(packages, args[0], strings.Join(args[1:], ""))
	if err != nil {
		return err
	}
	for _, run := range runs {
		fmt.Println(strings.Join(run.Args(), " "))
	}
	return nil
}
