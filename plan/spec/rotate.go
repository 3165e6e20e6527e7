package spec

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"railbed/internal/units"
)

// MinRotate and MaxRotate bound the size after which a recording begins another file.
const (
	MinRotate = units.Bytes(64 << 10)
	MaxRotate = units.Bytes(1 << 40)
)

// CapturePart returns the name of a file of a recording in several files, counted from 1: run.pcapng,
// run-2.pcapng, run-3.pcapng.
func CapturePart(file string, number int) string {
	if number <= 1 {
		return file
	}
	suffix := path.Ext(file)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(file, suffix), number, suffix)
}

// CaptureOf is the inverse of CapturePart. For a name without a number it returns the name and 1.
func CaptureOf(part string) (file string, number int) {
	suffix := path.Ext(part)
	stem := strings.TrimSuffix(part, suffix)
	dash := strings.LastIndexByte(stem, '-')
	if dash < 0 {
		return part, 1
	}
	number, err := strconv.Atoi(stem[dash+1:])
	if err != nil || CapturePart(stem[:dash]+suffix, number) != part {
		return part, 1
	}
	return stem[:dash] + suffix, number
}

// checkRotation checks the size of files, and that no other capture writes one of the files.
func (capture *Capture) checkRotation(c *checker, at string) {
	c.between(at+".rotate", capture.Rotate, MinRotate, MaxRotate)
	limit := cmp.Or(capture.Limit, defaultLimit)
	atEnd := capture.Start == nil && (capture.Last > 0 || capture.LastBytes > 0) // then there is no limit
	if capture.Rotate > limit && !atEnd {
		c.Report(at+".rotate", fmt.Sprintf("rotate is %s, and the recording ends at its limit of %s",
			capture.Rotate, limit), "want a smaller size, or a higher limit")
	}
	taken := func(path, part string, number int, by string) {
		c.Report(path, fmt.Sprintf("capture file %q is file %d of %s, which rotates", part, number, by),
			"give each capture a file of its own")
	}
	if whole, number := CaptureOf(capture.File); c.rotated[whole] != "" {
		taken(at+".file", capture.File, number, c.rotated[whole])
	}
	if capture.Rotate == 0 || capture.File == "" {
		return
	}
	c.rotated[capture.File] = at
	for part, by := range c.files {
		if whole, number := CaptureOf(part); number > 1 && whole == capture.File {
			taken(by+".file", part, number, at)
		}
	}
}
