package stacks

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/plan"
)

// Whatever programs print, it is a table that a report can hold, or an error.
func FuzzOutput(f *testing.F) {
	for _, text := range []string{iperf3Says, redisSays, ucxSays, libfabricSays, osuSays, ddpSays,
		perftestSaysBandwidth, perftestSaysLatency, ssSays} {
		f.Add(text)
	}
	for figure, is := range map[string]string{"7211.54": redisSays, "12.59": ucxSays, "1.11": libfabricSays,
		"6533.19": osuSays, "33.736": ddpSays, "4.01": perftestSaysBandwidth, "4.719": redisSays} {
		f.Add(strings.Replace(is, figure, "NaN", 1))
		f.Add(strings.Replace(is, figure, "-inf", 1))
	}
	f.Fuzz(func(t *testing.T, text string) {
		one := func(row report.StackRow, err error) ([]report.StackRow, error) {
			return []report.StackRow{row}, err
		}
		whole := func(name string, columns []string, rows []report.StackRow, err error) {
			if err != nil {
				return
			}
			if len(rows) == 0 {
				t.Errorf("%s: no rows and no error", name)
			}
			for _, row := range rows {
				if _, err := json.Marshal(row); err != nil || row.Key == "" ||
					len(row.Cells) != len(columns) || row.Value < 0 {
					t.Errorf("%s: %+v for %d columns, %v", name, row, len(columns), err)
				}
			}
			s := report.Stack{Columns: columns, Rows: rows, Figures: columns}
			s.Compare(&s)
			if _, err := json.Marshal(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		row, _, err := parseIPerf3("p", []byte(text))
		rows, err := one(row, err)
		whole("iperf3", iperf3Columns, rows, err)
		columns, rows, err := parseRedis("h", text)
		whole("redis", columns, rows, err)
		rows, err = one(parseUCX("p", text))
		whole("ucx", ucxColumns, rows, err)
		rows, err = one(parseLibfabric("p", text, len(libfabricColumns)))
		whole("libfabric", libfabricColumns, rows, err)
		made, err := parseOSU(text)
		whole("osu", made.columns, made.rows, err)
		made, parameters, err := parseDDP(text, 2)
		if whole("ddp", made.columns, made.rows, err); err == nil && parameters <= 0 {
			t.Errorf("ddp: %d parameters", parameters)
		}
		rows, err = one(parsePerftest("p", text, perftestBandwidth, false))
		whole("perftest", perftestBandwidth, rows, err)
		rows, err = one(parsePerftest("p", text, perftestLatency, true))
		whole("perftest", perftestLatency, rows, err)
		trips := newTrips([]*plan.Node{{Name: "h1",
			Loopbacks: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}})
		trips.read("h0", text)
		for pair, took := range trips.least {
			if pair != [2]string{"h0", "h1"} || took < 0 {
				t.Errorf("trips: %v takes %v", pair, took)
			}
		}
		waitedFor(nil, map[string]string{"h0": text})
	})
}
