// Railbed brings up emulated AI clusters on one Linux machine, runs real workloads on them and
// proves their behaviour from captured packets.
package main

import (
	"os"

	"railbed/cli"
)

func main() {
	cli.Init()
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
