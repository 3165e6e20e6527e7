package reporting

import (
	"fmt"
	"math"

	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/svg"
	"railbed/internal/units"
)

// bars is the chart of a lateness histogram. It has a bar for each bucket from the first to the
// last bucket that holds frames. The height of a bar is proportional to its share of the fullest
// bucket.
type bars struct {
	Width  float64
	Bars   []latenessBar
	Labels []svg.Tick
}

type latenessBar struct {
	X, Y, Height float64
	Text         string // the bar's contents, in words
}

// Sizes of the chart, in units of its view box, which is barsHeight high with a line of labels
// below it.
const (
	barsHeight = 60
	barsPitch  = 24 // from bar to bar
	barsLeast  = 1  // keeps a bar of few frames visible
	labelEvery = 4
)

func newBars(l report.Lateness) bars {
	var b bars
	if len(l.Buckets) == 0 {
		return b
	}
	most := uint64(1)
	for _, bucket := range l.Buckets {
		most = max(most, bucket.Frames)
	}
	first, last := bucketPlace(l.Buckets[0]), bucketPlace(l.Buckets[len(l.Buckets)-1])
	b.Width = float64(last-first+1) * barsPitch
	for _, bucket := range l.Buckets {
		place := bucketPlace(bucket) - first
		height := max(barsLeast, float64(bucket.Frames)/float64(most)*barsHeight)
		text := fmt.Sprintf("%s or more: %s", units.Micros(bucket.From), plural.Count(bucket.Frames,
			"frames"))
		if bucket.To > 0 {
			text = fmt.Sprintf("%s to %s: %s", units.Micros(bucket.From), units.Micros(bucket.To),
				plural.Count(bucket.Frames, "frames"))
		}
		b.Bars = append(b.Bars, latenessBar{X: float64(place) * barsPitch, Y: barsHeight - height,
			Height: height, Text: text})
		if place%labelEvery == 0 || len(b.Labels) == 0 {
			label := svg.Tick{At: float64(place) * barsPitch, Text: units.Micros(bucket.From)}
			if label.Last = place > 0 && label.At+labelEvery*barsPitch/2 > b.Width; label.Last {
				label.At = b.Width
			}
			b.Labels = append(b.Labels, label)
		}
	}
	return b
}

// bucketPlace returns the number of doublings up to a bucket.
func bucketPlace(b report.Bucket) int {
	from := b.From
	if from <= 0 {
		from = b.To / 2
	}
	if from <= 0 { // not a bucket of a run
		return 0
	}
	return int(math.Round(math.Log2(from)))
}
