// Package hosttest is for tests only: it says what the host lacks in one line
// instead of failing obscurely, runs a test as an ordinary user's user
// namespace sees the host, and fails a test binary that leaves goroutines,
// descriptors, processes, links or mounts behind.
//
// A test that cannot run counts as skipped, never as passed. The variable
// RAILBED_REQUIRE, a comma separated list of features or "all", turns the
// skips of these features into failures; CI sets it.
package hosttest
