package verify_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"railbed/capture/verify"
	"railbed/plan/spec"
)

// A capture of another program is judged by a check as files have it.
func Example() {
	capture, err := os.Open("rocechecks/testdata/rxe/write-lost-behind.pcap")
	if err != nil {
		log.Fatal(err)
	}
	defer capture.Close()
	asked, _, err := spec.ParsePacketsCheck("check", "roce: {rule: go-back-n}")
	if err != nil {
		log.Fatal(err)
	}
	check, err := verify.New(asked, verify.Sources{})
	if err != nil {
		log.Fatal(err)
	}
	results, _, err := verify.Run(context.Background(), capture, verify.Options{}, check)
	if err != nil {
		log.Fatal(err)
	}
	first, _, _ := strings.Cut(results[0].Summary, ",")
	fmt.Printf("%s: %s\n", results[0].Verdict, first)
	// Output:
	// PASS: 8 of 44 requests were sent again
}
