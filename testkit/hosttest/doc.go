// Package hosttest is for tests only. It reports in one line what the host lacks, instead of
// letting a test fail obscurely. It runs a test in the user namespace of an ordinary user. It fails
// a test binary that leaves goroutines, descriptors, processes, links or mounts behind.
//
// A test that cannot run counts as skipped, never as passed. The variable RAILBED_REQUIRE, a comma
// separated list of features or "all", turns the skips of these features into failures; CI sets it.
//
// With RAILBED_SAMPLE=n, or n:k, long tables of tests try each n-th row only, from row k. make test sets it
// for root's second run, as an ordinary user. CI sets it for root's own run, too. With RAILBED_LONG=n:k, an
// nth of the long tests runs. CI sets it.
package hosttest
