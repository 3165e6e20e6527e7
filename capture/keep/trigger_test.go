package keep_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"railbed/capture/keep"
	"railbed/testkit/verifytest"
)

func TestWrongTriggers(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "an empty trigger",
		"ip.scr == 1":             "column 1: ",
		"3rd ip.scr == 1":         "column 5: ",
		"0th ip":                  "want 1st, 2nd",
		"pause":                   "want pause > TIME",
		"pause > ten":             "\"ten\" is not a time above 0",
		"pause > -1ms":            "is not a time above 0",
		"pause > 1ms by h0":       "want pause > TIME",
		"counter":                 "want counter SERIES > NUMBER",
		"counter railbed_x > ten": "want counter SERIES > NUMBER",
		"counter railbed_x > 1e":  "is not a number",
	} {
		if _, err := keep.ParseTrigger(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	_, err := keep.ParseTriggers([]string{"ip", "pause > ten"})
	if err == nil || !strings.HasPrefix(err.Error(), "trigger 2: ") {
		t.Error(err)
	}
}

// stopped keeps what comes before the first of some events, and returns the time of the last packet of it.
func stopped(t *testing.T, recording []byte, texts ...string) (at time.Duration, found bool) {
	t.Helper()
	k, files := kept(t, recording, keep.Options{Stop: events(t, texts...), Always: true})
	all := packets(t, files[0])
	return all[len(all)-1].at, k.Stopped
}

func TestNthPacket(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	whole := s.Write()
	all := packets(t, whole)
	var times []time.Duration
	for _, p := range all {
		if p.tap == "h0:eth0" {
			times = append(times, p.at)
		}
	}
	const filter = `frame.interface_name == "h0:eth0"`
	for n, text := range map[int]string{1: filter, 2: "2nd " + filter, 17: "17th " + filter} {
		if at, found := stopped(t, whole, text); !found || at != times[n-1] {
			t.Errorf("%s: ends at %s, %v, want %s", text, at, found, times[n-1])
		}
	}
	if _, found := stopped(t, whole, "1000000th ip"); found {
		t.Error("there are no million packets")
	}
	// The first of several counts.
	if at, found := stopped(t, whole, "17th "+filter, "pause > 1h", "3rd "+filter); !found || at != times[2] {
		t.Errorf("ends at %s, %v, want %s", at, found, times[2])
	}
}

// What Stop awaits counts from the start on.
func TestStopCountsFromTheStart(t *testing.T) {
	whole := verifytest.SoftScene(t, verifytest.SoftFile).Write()
	var times []time.Duration
	for _, p := range packets(t, whole) {
		if p.tap == "h0:eth0" {
			times = append(times, p.at)
		}
	}
	const filter = `frame.interface_name == "h0:eth0"`
	for n, text := range map[int]string{10: filter, 12: "3rd " + filter} {
		k, files := kept(t, whole, keep.Options{Start: events(t, "10th "+filter), Stop: events(t, text)})
		if !k.Started || !k.Stopped || len(files) != 1 {
			t.Fatalf("%s: %+v", text, k)
		}
		all := packets(t, files[0])
		if first, last := all[0].at, all[len(all)-1].at; first != times[9] || last != times[n-1] {
			t.Errorf("%s: kept from %s to %s, want %s to %s", text, first, last, times[9], times[n-1])
		}
	}
}

func TestLongPause(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	began := s.Now - 900_000_000
	s.Pause("leaf1:p0", began, 1000)
	s.Pause("leaf1:p0", began+2_000_000, 1000) // again: the same pause goes on
	s.Pause("leaf1:p0", began+5_000_000, 0)    // its end
	whole := s.Write()
	start := time.Duration(began - verifytest.Start)
	for _, c := range []struct {
		text  string
		found bool
	}{
		{"pause > 1ms", true}, {"pause > 4900us", true}, {"pause > 6ms", false},
		{"pause > 1ms at leaf1:*", true}, {"pause > 1ms at leaf2:*", false},
	} {
		at, found := stopped(t, whole, c.text)
		if found != c.found || found && (at <= start+time.Millisecond || at > start+5*time.Millisecond+
			time.Microsecond) {
			t.Errorf("%s: %v at %s, paused from %s to %s; want %v", c.text, found, at, start,
				start+5*time.Millisecond, c.found)
		}
	}
}

// A recording that goes on until a counter has grown, without a packet after that.
func TestCounter(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	whole := s.Write()
	for _, c := range []struct {
		above string
		ends  bool
	}{{"2", true}, {"1e9", false}} {
		in, out := io.Pipe()
		go func() { _, _ = out.Write(whole) }()
		if !c.ends {
			time.AfterFunc(10*keep.CounterInterval, func() { _ = out.Close() })
		}
		var reads atomic.Int64
		k, err := keep.Copy(in, func(int) (io.WriteCloser, error) { return nopCloser{&bytes.Buffer{}}, nil },
			keep.Options{Stop: events(t, "counter railbed_x > "+c.above), Always: true,
				Stopped:  func() { _ = out.Close() },
				Counters: func(string) (float64, error) { return 40 + float64(reads.Add(1)), nil }})
		if err != nil || k.Stopped != c.ends || k.Packets == 0 || c.ends && reads.Load() != 4 {
			t.Errorf("> %s: %+v, %v after %d readings", c.above, k, err, reads.Load())
		}
	}
	failure := errors.New("no such series")
	_, err := keep.Copy(bytes.NewReader(whole), func(int) (io.WriteCloser, error) {
		return nopCloser{&bytes.Buffer{}}, nil
	}, keep.Options{Stop: events(t, "counter railbed_x > 1"),
		Counters: func(string) (float64, error) { return 0, failure }})
	if !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}
