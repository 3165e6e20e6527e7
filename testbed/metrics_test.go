package testbed_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"railbed/internal/rundir"
	"railbed/testbed"
	"railbed/testbed/probe"
)

// scrape reads a testbed's /metrics from its socket, as Prometheus would, and
// returns the values by their names with labels, as they are printed. Names,
// units and help texts must be as Prometheus' linter wants them.
func scrape(t *testing.T, tb *testbed.Testbed) map[string]float64 {
	t.Helper()
	dir, err := rundir.Of(tb.Name())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", dir.Socket())
		},
	}}
	response, err := client.Get("http://railbed/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", response.Status, err, text)
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatalf("no exposition format: %v", err)
	}
	for _, p := range problems {
		if p.Metric != "railbed_link_rate_bits_per_second" { // a link's rate is in bits everywhere else
			t.Errorf("metric %s: %s", p.Metric, p.Text)
		}
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cut := strings.LastIndex(line, " ")
		value, err := strconv.ParseFloat(strings.TrimSpace(line[cut+1:]), 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		values[line[:cut]] = value
	}
	return values
}

// checkHistograms checks how late frames were: at the end of each link and overall,
// in buckets whose last holds all.
func checkHistograms(t *testing.T, got map[string]float64) {
	t.Helper()
	series := func(name, suffix string, labels ...string) float64 {
		text := name + suffix
		if labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" }); len(labels) > 0 {
			text += "{" + strings.Join(labels, ",") + "}"
		}
		value, there := got[text]
		if !there {
			t.Errorf("there is no %s", text)
		}
		return value
	}
	ofLinks := 0.0
	for _, c := range []struct{ name, labels string }{
		{"railbed_release_lateness_seconds", ""},
		{"railbed_nic_arrival_lateness_seconds", `link="h0--leaf1",nic="eth0",node="h0"`},
		{"railbed_nic_arrival_lateness_seconds", `link="h1--leaf1",nic="eth0",node="h1"`},
		{"railbed_arrival_lateness_seconds", ""},
	} {
		below := 0.0
		for bits := 10; bits <= 30; bits++ { // nanoseconds
			le := strconv.FormatFloat(float64(int64(1)<<bits)/1e9, 'g', -1, 64)
			value := series(c.name, "_bucket", c.labels, `le="`+le+`"`)
			if value < below {
				t.Errorf("%s of %s: %v in the bucket to %s, %v in that before it", c.name, c.labels, value,
					le, below)
			}
			below = value
		}
		count := series(c.name, "_count", c.labels)
		if all := series(c.name, "_bucket", c.labels, `le="+Inf"`); all != count || below > all ||
			count == 0 || series(c.name, "_sum", c.labels) <= 0 {
			t.Errorf("%s of %s: %v frames, %v in all buckets, %v in those but the last", c.name, c.labels,
				count, all, below)
		}
		if c.labels != "" {
			ofLinks += count
		}
	}
	if all := series("railbed_arrival_lateness_seconds", "_count"); all != ofLinks {
		t.Errorf("%v frames were watched, %v of them on links", all, ofLinks)
	}
}

// TestMetrics: a scrape shows the telemetry that a running testbed's switch wrote into probes, and
// the sums that it made for workers.
func TestMetrics(t *testing.T) {
	tb := upPlan(t, `
name: go-metrics
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft, int: true, aggregation: {slots: 8, elements: 64, timeout: 20s}}
  links: {default: {rate: 1gbit, delay: 20us}}
`)
	const tail, exceeded = `railbed_port_dropped_packets_total{port="leaf1:p0",priority="%d",reason="tail"}`,
		`railbed_port_dropped_packets_total{port="leaf1:p0",priority="%d",reason="ttl-exceeded"}`
	start := scrape(t, tb)
	for q := range 8 {
		for _, series := range []string{tail, exceeded,
			`railbed_port_dropped_packets_total{port="h0:eth0",priority="%d",reason="nic-overrun"}`} {
			if value, there := start[fmt.Sprintf(series, q)]; !there || value != 0 {
				t.Errorf("at first %s is %v (there: %t), want 0", fmt.Sprintf(series, q), value, there)
			}
		}
	}
	// A packet of DSCP 26, which is priority 3, that may take one hop.
	if output, err := tb.Node("h0").Command(t.Context(), "ping", "-c", "2", "-W", "1", "-i", "0.2", "-t", "1",
		"-Q", "104", "h1").CombinedOutput(); err == nil {
		t.Fatalf("two hops in one: %s", output)
	}
	const closed = `railbed_node_drops_total{node="h1",reason="udp-no-socket"}`
	if value, there := start[closed]; !there || value != 0 {
		t.Errorf("at first %s is %v (there: %t), want 0", closed, value, there)
	}
	if output, err := tb.Node("h0").Command(t.Context(), "bash", "-c",
		"echo a >/dev/udp/h1/9").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	const probes, chunks = 7, 20
	report, err := probe.Run(t.Context(), tb, probe.Options{From: "h0", To: "h1", Count: probes})
	if err != nil || report.Arrived != probes {
		t.Fatalf("%v: %+v", err, report)
	}
	if _, err := sumAll(t, tb, 1, chunks*64, false); err != nil {
		t.Fatal(err)
	}
	if _, err := sumOne(t, tb, 1, 0, 64, false); err == nil {
		t.Fatal("a worker of an epoch before was not sent away")
	}
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, series := range []string{closed, `railbed_node_drops_total{ node = "h1" }`,
		"railbed_node_drops_total"} {
		got, err := tb.Counter(t.Context(), series)
		if err != nil || got < max(sum, 1) {
			t.Errorf("%s is %v, %v, after %v of one of its series", series, got, err, sum)
		}
		sum = got
	}
	for series, want := range map[string]string{
		"railbed_nosuch": "no metric railbed_nosuch", `railbed_node_drops_total{node="h9"}`: "no series",
		"1a": "want name", `railbed_node_drops_total{node=h1}`: `want label="value"`,
	} {
		if _, err := tb.Counter(t.Context(), series); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", series, err, want)
		}
	}
	got, s := scrape(t, tb), state.Soft.Aggregation[0]
	// Two tensors, and a third that also asks each slot for its scales.
	const sums = 3*chunks + 8
	job := fmt.Sprintf(`{job_id="%d",switch="leaf1"}`, s.Job)
	for name, want := range map[string]float64{
		`railbed_port_int_hops_total{port="leaf1:p0"}`:                                0,
		`railbed_port_int_hops_total{port="leaf1:p1"}`:                                probes,
		`railbed_port_int_unwritten_hops_total{port="leaf1:p1",reason="int-full"}`:    0,
		`railbed_port_int_unwritten_hops_total{port="leaf1:p1",reason="int-invalid"}`: 0,
		`railbed_port_int_unwritten_hops_total{port="leaf1:p1",reason="int-no-room"}`: 0,
		fmt.Sprintf(exceeded, 3):                  2,
		fmt.Sprintf(exceeded, 0):                  0,
		"railbed_aggregation_workers" + job:       2,
		"railbed_aggregation_epoch" + job:         1,
		"railbed_aggregation_waiting_sums" + job:  0,
		"railbed_aggregation_timed_out" + job:     0,
		"railbed_aggregation_updates_total" + job: 2 * sums,
		"railbed_aggregation_results_total" + job: sums,
		"railbed_aggregation_repeated_updates_total" +
			job: float64(s.Repeats),
		"railbed_aggregation_repeated_results_total" +
			job: float64(s.Again),
		"railbed_aggregation_unsent_messages_total" + job: 0,
		fmt.Sprintf(`railbed_aggregation_rejected_updates_total{code="epoch-old",%s`,
			job[1:]): float64(s.Rejected["epoch-old"]),
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v (there: %t), want %v", name, value, there, want)
		}
	}
	checkHistograms(t, got)
	// On a busy host, results that the switch repeats find the workers' sockets closed, too.
	if got[closed] < 1 {
		t.Errorf("%s is %v, want at least 1", closed, got[closed])
	}
	if s.Rejected["epoch-old"] == 0 {
		t.Errorf("nothing was rejected: %+v", s)
	}
	for name := range got {
		if strings.Contains(name, `reason="headroom"`) || strings.Contains(name, `reason="loss"`) ||
			strings.Contains(name, "_marked_") {
			t.Errorf("%s: nothing is lossless, lost or marked here", name)
		}
		if strings.HasPrefix(name, "railbed_port_int_") && !strings.Contains(name, `port="leaf1:`) {
			t.Errorf("%s: an emulated NIC writes no telemetry", name)
		}
	}
}
