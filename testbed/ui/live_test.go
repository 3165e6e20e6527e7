package ui

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"railbed/fabric"
	"railbed/internal/units"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// TestStream follows a testbed: counters move with traffic, events come, and the last message gives the end.
func TestStream(t *testing.T) {
	tb := up(t, "ui-stream", soft, "a <b>file</b>.yaml")
	s := serve(t, tb)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	updates := s.updates(ctx)
	await(t, updates, "the whole state", func(u update) bool {
		var got summary
		return u.Summary != nil && len(u.rows(t)) == 2 && json.Unmarshal(u.Summary, &got) == nil &&
			got.Name == tb.Name() && got.Nodes == 2 && got.Switches == 1 && got.File == "a <b>file</b>.yaml"
	})
	traffic(t, tb, "h0", "h1", "-s", "1000")
	before, events := uint64(0), ""
	for range 2 {
		await(t, updates, "more packets from h0", func(u update) bool {
			events += fmt.Sprintf("%s", u.Events)
			for _, row := range u.rows(t) {
				if d := row.Directions[0]; row.Name == "h0--leaf1" && d.Packets > before &&
					d.BitsPerSecond > 1000 && d.Load < 0.5 && d.Rate == "100mbit" {
					before = d.Packets
					return true
				}
			}
			return false
		})
	}
	if !strings.Contains(events, `"kind":"process.start","subject":"h0"`) {
		t.Errorf("there is no start of ping among the events %s", events)
	}
	if err := tb.ChangeLink(ctx, supervisor.LinkRequest{Where: "h1--leaf1", State: "down"}); err != nil {
		t.Fatal(err)
	}
	await(t, updates, "a link that is down", func(u update) bool {
		rows := u.rows(t)
		return len(rows) > 0 && rows[len(rows)-1].Name == "h1--leaf1" && !rows[len(rows)-1].Up
	})
	if err := tb.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, updates, "the end", func(u update) bool { return u.Ended == "The testbed was taken down." })
	if _, open := <-updates; open {
		t.Error("the stream goes on after the end")
	}
	select {
	case err := <-s.ended:
		s.ended <- err
	case <-time.After(hosttest.Bound):
		t.Error("the server does not end with its testbed")
	}
}

// TestPagesAreBounded: a page too many is refused, and closed pages make room.
func TestPagesAreBounded(t *testing.T) {
	tb := up(t, "ui-pages", soft, "")
	s := serve(t, tb)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range maxPages {
		s.updates(ctx)
	}
	if status, body := s.get("stream"); status != http.StatusServiceUnavailable {
		t.Errorf("page %d: status %d: %s", maxPages+1, status, body)
	}
	cancel()
	hosttest.Until(t, "the end of the pages that were closed", func() bool { return len(s.pages) == 0 })
	if status, _ := s.get("link?name=h0--leaf1"); status != http.StatusOK {
		t.Errorf("afterwards: status %d", status)
	}
}

// inspect returns a link of a testbed.
func inspect(t *testing.T, tb *testbed.Testbed, name string) fabric.LinkState {
	t.Helper()
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range state.Links {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("no link %s", name)
	return fabric.LinkState{}
}

// TestLinks changes links as the form does, and finds the changes in the testbed.
func TestLinks(t *testing.T) {
	tb := up(t, "ui-links", soft, "")
	s := serve(t, tb)
	const name = "h0--leaf1"
	var got form
	status, body := s.post("link/set", setRequest{name, map[string]string{"rate": "50mbit", "delay": "3us",
		"drop-list": "[5, 6]", "flap": "{every: 1s, for: 1ms}"}})
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	shown := map[string][2]string{}
	for _, f := range got.Fields {
		shown[f.Key] = f.Values
	}
	for key, want := range map[string]string{"rate": "50mbit", "delay": "3us", "drop-list": "[5, 6]",
		"flap": "{every: 1s, for: 1ms}", "loss": ""} {
		if shown[key] != [2]string{want, want} {
			t.Errorf("the form has %s %q", key, shown[key])
		}
	}
	status, body = s.post("link/set", setRequest{name + " b-to-a", map[string]string{"loss": "1%",
		"delay": "", "drop-list": "", "flap": " "}})
	l := inspect(t, tb, name)
	if status != http.StatusOK || l.AToB.Rate != units.Rate(50e6) || !l.AToB.Loss.IsZero() ||
		l.BToA.Loss.String() != "1%" || len(l.AToB.DropList) != 2 || l.BToA.Delay != 0 ||
		l.BToA.DropList != nil || l.BToA.Flap.For != 0 || l.AToB.Flap.For == 0 {
		t.Errorf("status %d: %s; the link is %+v", status, body, l)
	}
	for _, c := range []struct {
		set        setRequest
		key, wrong string
	}{
		{setRequest{name, map[string]string{"rate": "fast", "delay": "1us"}}, "rate", "fast"},
		{setRequest{name, map[string]string{"rate": ""}}, "rate", "want a value"},
		{setRequest{name, map[string]string{"drop-list": "[5"}}, "drop-list", ""},
		{setRequest{name, map[string]string{"colour": "red"}}, "", "an unknown field"},
		{setRequest{name, nil}, "", "no field differs"},
		{setRequest{name, map[string]string{"jitter": "1s"}}, "", "jitter"}, // more than the delay
		{setRequest{"h0--nowhere", map[string]string{"rate": "1gbit"}}, "", "no such object"},
		{setRequest{name + " up", map[string]string{"rate": "1gbit"}}, "", "want a-to-b or b-to-a"},
	} {
		var got struct{ Problems []problem }
		status, body := s.post("link/set", c.set)
		if err := json.Unmarshal([]byte(body), &got); err != nil || status < 400 || len(got.Problems) != 1 ||
			got.Problems[0].Key != c.key || !strings.Contains(got.Problems[0].Text, c.wrong) {
			t.Errorf("%v: status %d: %s", c.set, status, body)
		}
	}
	if now := inspect(t, tb, name); !now.AToB.Equal(l.AToB.Direction) || !now.BToA.Equal(l.BToA.Direction) {
		t.Errorf("wrong requests changed the link to %+v", now)
	}
	for _, state := range []string{"down", "up"} {
		status, body := s.post("link/state", map[string]string{"where": name + " a-to-b", "state": state})
		if l := inspect(t, tb, name); status != http.StatusOK || l.AToB.Up != (state == "up") || !l.BToA.Up {
			t.Errorf("%s: status %d: %s; a-to-b is up: %v", state, status, body, l.AToB.Up)
		}
	}
	if status, body := s.post("link/state", map[string]string{"where": name, "state": "sideways"}); status !=
		http.StatusUnprocessableEntity {
		t.Errorf("state sideways: status %d: %s", status, body)
	}
}

// TestLinksOfTheKernel: the form leaves out the settings of soft switches, and names them.
func TestLinksOfTheKernel(t *testing.T) {
	tb := up(t, "ui-kernel", strings.Replace(soft, "kind: soft", "kind: router", 1), "")
	s := serve(t, tb)
	status, body := s.get("link?name=h0--leaf1")
	if status != http.StatusOK || strings.Contains(body, `"key":"flap"`) || !strings.Contains(body, `"flap"`) ||
		!strings.Contains(body, "only links of soft switches") {
		t.Errorf("status %d: %s", status, body)
	}
	status, body = s.post("link/set", setRequest{"h0--leaf1", map[string]string{"reorder": "1%"}})
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, "soft") {
		t.Errorf("reorder on a link of the kernel: status %d: %s", status, body)
	}
}

// lastEvent returns the latest event of a kind, and how many there are.
func lastEvent(t *testing.T, tb *testbed.Testbed, kind string) (last supervisor.Event, count int) {
	t.Helper()
	if err := tb.Events(t.Context(), false, func(e supervisor.Event) error {
		if e.Kind == kind {
			last = e
			count++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return last, count
}

// TestCapture lists packets as they come. The recording ends at the supervisor with its client, and on
// request with the number of lost packets.
func TestCapture(t *testing.T) {
	tb := up(t, "ui-capture", soft, "")
	s := serve(t, tb)
	traffic(t, tb, "h0", "h1")
	for _, c := range []struct{ at, filter, key, wrong string }{
		{"h0:eth0", "ip.scr == 1", "filter", "column 1"}, {"h9:eth0", "", "", "no such object"},
	} {
		status, body := s.post("capture", captureRequest{[]string{c.at}, c.filter})
		var got struct{ Problems []problem }
		if err := json.Unmarshal([]byte(body), &got); err != nil || status < 400 || len(got.Problems) != 1 ||
			got.Problems[0].Key != c.key || !strings.Contains(got.Problems[0].Text, c.wrong) {
			t.Errorf("%v: status %d: %s", c, status, body)
		}
	}
	for i, how := range []string{"closes", "asks"} {
		ctx, cancel := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.address("capture"),
			bytes.NewReader(marshal(t, captureRequest{[]string{"h0:eth0"}, "icmp.type == 8"})))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		id, listed := 0, 0
		var last packets
		for lines := bufio.NewScanner(answer.Body); listed < 3 && lines.Scan(); {
			last = packets{}
			if err := json.Unmarshal(lines.Bytes(), &last); err != nil {
				t.Fatalf("%s: %v", lines.Bytes(), err)
			}
			id = max(id, last.ID)
			for _, p := range last.Packets {
				listed++
				if p.Protocol != "ICMP" || p.Tap != "h0:eth0" || p.Direction != "out" {
					t.Errorf("packet %+v", p)
				}
			}
		}
		if listed < 3 || last.Recorded <= last.Matched {
			t.Fatalf("%d packets; the last message is %+v", listed, last)
		}
		if how == "asks" {
			if status, body := s.post("capture/stop", map[string]int{"id": id}); status != http.StatusOK {
				t.Errorf("stop: status %d: %s", status, body)
			}
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				last = packets{}
				_ = json.Unmarshal(lines.Bytes(), &last) // the first may be the rest of a line
			}
			if !last.Ended || last.Lost != 0 || last.Error != "" {
				t.Errorf("the last message is %+v", last)
			}
		}
		cancel()
		awaitStops(t, tb, i+1)
	}
	if len(s.recordings.open) != 0 {
		t.Errorf("%d recordings are open", len(s.recordings.open))
	}
}

// awaitStops waits until the supervisor has ended this number of recordings, without losses.
func awaitStops(t *testing.T, tb *testbed.Testbed, wanted int) {
	t.Helper()
	hosttest.Eventually(t, fmt.Sprintf("the end of recording %d", wanted), func() error {
		stop, stops := lastEvent(t, tb, "capture.stop")
		if stops != wanted {
			return fmt.Errorf("%d ended", stops)
		}
		if !strings.HasSuffix(stop.Detail, " 0 dropped") {
			t.Errorf("a recording ended with %s", stop.Detail)
		}
		return nil
	})
}

// TestEndOfServer: recordings without packets end with their client, too. Ctrl-C ends recordings at once and
// says so to open pages.
func TestEndOfServer(t *testing.T) {
	tb := up(t, "ui-end", soft, "")
	s := serve(t, tb)
	updates := s.updates(t.Context())
	for i := range 2 {
		answer, err := s.client.Post(s.address("capture"), "application/json",
			bytes.NewReader(marshal(t, captureRequest{At: []string{"all"}})))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
		if i == 0 {
			answer.Body.Close()
			awaitStops(t, tb, 1)
		}
	}
	stopped := time.Now()
	s.stop()
	await(t, updates, "the end", func(u update) bool {
		return strings.HasPrefix(u.Ended, "railbed ui was stopped")
	})
	err := <-s.ended
	s.ended <- err
	if took := time.Since(stopped); took > farewell {
		t.Errorf("the server ended after %v", took)
	}
	awaitStops(t, tb, 2)
}

// TestDeathOfSupervisor: the page shows it if the testbed dies, and Serve returns an error.
func TestDeathOfSupervisor(t *testing.T) {
	tb := up(t, "ui-death", soft, "")
	s := serve(t, tb)
	updates := s.updates(t.Context())
	await(t, updates, "the state", func(u update) bool { return u.Summary != nil })
	if err := tb.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, updates, "the end", func(u update) bool {
		return strings.HasPrefix(u.Ended, "testbed ui-death ended without being taken down")
	})
	if err := <-s.ended; err == nil {
		t.Error("the server ended without an error")
	}
	s.ended <- nil
}

// TestPicture draws the plan that another process has changed.
func TestPicture(t *testing.T) {
	tb := up(t, "ui-picture", soft, "")
	s := serve(t, tb)
	if status, body := s.get("picture.svg"); status != http.StatusOK || !strings.Contains(body, "100mbit") ||
		!strings.Contains(body, `data-links="h0--leaf1"`) {
		t.Fatalf("status %d: %s", status, body)
	}
	other, err := testbed.Open(t.Context(), tb.Name())
	if err != nil {
		t.Fatal(err)
	}
	changed := plantest.Compile(t, "name: ui-picture"+strings.Replace(soft, "100mbit", "50mbit", 1))
	if _, err := other.Converge(t.Context(), changed, testbed.Options{}); err != nil {
		t.Fatal(err)
	}
	if status, body := s.get("picture.svg"); status != http.StatusOK || !strings.Contains(body, "50mbit") {
		t.Errorf("after the change: status %d: %s", status, body)
	}
}
