package testbed

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

var (
	seriesForm = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?$`)
	labelForm  = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*("(?:[^"\\]|\\.)*")\s*(?:,|$)`)
)

// Counter returns the sum of the counters and gauges of a series of the testbed's metrics, such as
// railbed_node_drops_total{node="h1"}. A label that the series does not name may have any value. A series
// that the testbed does not have is an error.
func (t *Testbed) Counter(ctx context.Context, series string) (float64, error) {
	name, labels, err := parseSeries(series)
	if err != nil {
		return 0, err
	}
	ctx, cancel := t.limited(ctx)
	defer cancel()
	response, err := t.do(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	family, known := families[name]
	if !known {
		return 0, fmt.Errorf("the testbed has no metric %s", name)
	}
	found, total := false, 0.0
	for _, metric := range family.Metric {
		if hasLabels(metric, labels) {
			found = true
			total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	if !found {
		return 0, fmt.Errorf("the testbed has no series %s", series)
	}
	return total, nil
}

// parseSeries parses name{label="value", ...}.
func parseSeries(series string) (name string, labels map[string]string, err error) {
	parts := seriesForm.FindStringSubmatch(series)
	if parts == nil {
		return "", nil, fmt.Errorf(`series %q: want name or name{label="value"}`, series)
	}
	labels = map[string]string{}
	for rest := parts[2]; rest != ""; {
		label := labelForm.FindStringSubmatch(rest)
		if label == nil {
			return "", nil, fmt.Errorf(`series %q: at %q want label="value"`, series, rest)
		}
		if labels[label[1]], err = strconv.Unquote(label[2]); err != nil {
			return "", nil, fmt.Errorf("series %q: value %s: %w", series, label[2], err)
		}
		rest = rest[len(label[0]):]
	}
	return parts[1], labels, nil
}

func hasLabels(metric *dto.Metric, labels map[string]string) bool {
	matched := 0
	for _, pair := range metric.Label {
		if value, asked := labels[pair.GetName()]; asked && value == pair.GetValue() {
			matched++
		}
	}
	return matched == len(labels)
}
