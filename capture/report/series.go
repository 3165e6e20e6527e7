package report

// Charts are the data of the page's charts. Data that the run could not find out is absent.
type Charts struct {
	Series        *Series        `json:"series,omitempty"`
	Activities    []Activity     `json:"activities,omitempty"`
	Distributions []Distribution `json:"distributions,omitempty"`
}

// Series are the time lines of a run: values of links in equal intervals. Seconds count from the start of the
// first step.
type Series struct {
	// Source is "counters", or the path of the recording that was read, below the report's directory.
	Source string `json:"source"`
	// Start is the begin of the first interval, and Interval the length of each, in seconds.
	Start    float64 `json:"start"`
	Interval float64 `json:"interval"` // between two values
	// Links are the directions of links that carried most for their rate, the busiest first. LeftOut counts
	// the directions that are left out.
	Links   []LinkSeries `json:"links"`
	LeftOut int          `json:"left_out,omitempty"`
}

// CountersSource is the source of time lines that were made from the links' counters.
const CountersSource = "counters"

// Bounds of time lines. A longer run has longer intervals.
const (
	SeriesPoints = 200
	SeriesLinks  = 64
)

// LinkSeries are the time lines of a direction of a link. A list has a value for each interval, and is absent
// if all values are 0.
type LinkSeries struct {
	From  string   `json:"from"`            // "leaf0:p3"
	To    string   `json:"to"`              // the port that receives
	Asked uint64   `json:"asked_bit_s"`     // rate of the plan
	Bits  []uint64 `json:"bit_s,omitempty"` // the rate in each interval
	// Depth is the greatest number of bytes seen in the queue of the sending port.
	Depth []uint64 `json:"depth,omitempty"`
	// Pauses are the pause frames that arrived at the sending port. Marks and Drops count packets at that
	// port.
	Pauses []uint64 `json:"pauses,omitempty"`
	Marks  []uint64 `json:"marks,omitempty"`
	Drops  []uint64 `json:"drops,omitempty"`
	// Again are the packets that the port of a node sent again. Only a recording shows them.
	Again []uint64 `json:"sent_again,omitempty"`
}
