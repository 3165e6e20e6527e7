package hosttest

import "testing"

// Mark selects the passes of make test that run a test, or all tests of a package. Package passes reads the
// marks in the sources, so no test is started only to be skipped. go test by hand ignores the marks.
type Mark string

const (
	// Unraced tests run without the race detector, which makes them several times slower. Tests that use
	// [VM] or vmtest.InGuest are Unraced without a mark: the detector takes a minute more on the emulated
	// processor of a guest.
	Unraced Mark = "unraced"
	// Raced tests of an Unraced package run with the race detector, too.
	Raced Mark = "raced"
	// Alone is for packages that measure rates and durations: no other package is tested meanwhile.
	Alone Mark = "alone"
	// AsNobody is for packages that ask the host for something: if root runs make test, their tests run a
	// second time, as an ordinary user.
	AsNobody Mark = "as nobody"
	// NotAsNobody tests of such a package run as root only: what an ordinary user may do does not change
	// them, and they take long.
	NotAsNobody Mark = "not as nobody"
)

// MarkTest marks the test that calls it. It does nothing when the test runs.
func MarkTest(testing.TB, ...Mark) {}

// MarkPackage marks all tests of the package, in one of its test files:
//
//	var _ = hosttest.MarkPackage(hosttest.Unraced, hosttest.Alone)
func MarkPackage(...Mark) bool { return true }
