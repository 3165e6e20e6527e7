package keys

import (
	_ "embed"
	"strings"
)

//go:generate go test -run TestSince . -update

// since.txt lists releases, oldest first, and below each the keys that it brought, as GROUP.KEY. The last
// release is the next one, to which the test adds new keys.
//
//go:embed since.txt
var sinceText string

// First is the first release.
var First, _, _ = strings.Cut(sinceText, "\n")

// since maps keys to the releases that brought them.
var since = Releases(sinceText)

// Releases reads a list of releases and their keys.
func Releases(text string) map[string]string {
	found := map[string]string{}
	release := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if key, is := strings.CutPrefix(line, "\t"); is {
			found[key] = release
		} else {
			release = line
		}
	}
	return found
}
