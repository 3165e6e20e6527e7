package supervisor

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"railbed/fabric/softswitch"
)

var (
	portPriority = []string{"port", "priority"}

	softSent     = prometheus.NewDesc("railbed_port_sent_packets_total", "Packets that the port sent, by priority.", portPriority, nil)
	softDepth    = prometheus.NewDesc("railbed_port_queue_bytes", "Bytes that wait at the port, by priority.", portPriority, nil)
	softPaused   = prometheus.NewDesc("railbed_port_paused", "1 while the far end has paused the priority.", portPriority, nil)
	softPauses   = prometheus.NewDesc("railbed_port_pauses_received_total", "Pause frames that the port received, by priority.", portPriority, nil)
	softAsked    = prometheus.NewDesc("railbed_port_pauses_sent_total", "Pause frames that the port sent, by priority.", portPriority, nil)
	softReceived = prometheus.NewDesc("railbed_port_received_packets_total", "Packets that the port received.", []string{"port"}, nil)
	softMarked   = prometheus.NewDesc("railbed_port_marked_packets_total", "Packets on which the port set congestion experienced.", []string{"port"}, nil)
	softTrimmed  = prometheus.NewDesc("railbed_port_trimmed_packets_total", "Packets whose payload the port cut away.", []string{"port"}, nil)
	softDropped  = prometheus.NewDesc("railbed_port_dropped_packets_total", "Packets that the port dropped, by reason.", []string{"port", "reason"}, nil)
)

var portDescs = []*prometheus.Desc{
	softSent, softDepth, softPaused, softPauses, softAsked, softReceived, softMarked, softTrimmed, softDropped,
}

// collectPort shows one port: every priority and every reason that it has met.
func collectPort(metrics chan<- prometheus.Metric, p *softswitch.PortState) {
	count := func(desc *prometheus.Desc, value uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), append([]string{p.Port}, labels...)...)
	}
	gauge := func(desc *prometheus.Desc, value float64, priority string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, p.Port, priority)
	}
	count(softReceived, p.Counters.Received.Packets)
	count(softMarked, p.Counters.Marked)
	count(softTrimmed, p.Counters.Trimmed)
	for reason, n := range p.Drops {
		count(softDropped, n, reason)
	}
	for q := range p.Depth {
		priority := strconv.Itoa(q)
		count(softSent, p.Counters.SentByPriority[q], priority)
		count(softAsked, p.Counters.PausesSent[q], priority)
		count(softPauses, p.Counters.PausesReceived[q], priority)
		gauge(softDepth, float64(p.Depth[q]), priority)
		paused := 0.0
		if p.Paused[q] {
			paused = 1
		}
		gauge(softPaused, paused, priority)
	}
}
