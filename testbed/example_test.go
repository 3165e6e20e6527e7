package testbed_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
)

// A testbed from a few lines of YAML, a real ping across it, and nothing left
// when the program ends.
func Example() {
	ctx := context.Background()
	file, err := spec.Decode("example.yaml", []byte(`
name: go-example
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 1}
`))
	if err != nil {
		log.Fatal(err)
	}
	p, err := plan.Compile(file)
	if err != nil {
		log.Fatal(err)
	}
	tb, err := testbed.Up(ctx, p, testbed.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tb.Close()

	output, err := tb.Node("h0").Command(ctx, "ping", "-4", "-q", "-c1", "h1").Output()
	if err != nil {
		log.Fatal(err)
	}
	counts, _, _ := strings.Cut(strings.Split(string(output), "\n")[3], ", time")
	fmt.Println(counts)

	output, err = tb.Node("h1").Command(ctx, "hostname").Output()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(os.Stdout, string(output))
	// Output:
	// 1 packets transmitted, 1 received, 0% packet loss
	// h1
}
