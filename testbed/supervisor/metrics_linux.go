package supervisor

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"railbed/fabric"
)

// metrics is the registry behind /metrics: the supervisor's own process and
// the counters of every link end, read from the kernel at each scrape.
func (s *supervisor) metrics() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), &linkCollector{s: s}, &softCollector{s: s}, &timingCollector{s: s})
	return registry
}

type linkCollector struct{ s *supervisor }

var (
	linkLabels   = []string{"link", "direction"}
	sentBytes    = prometheus.NewDesc("railbed_link_bytes_total", "Bytes sent into the link, Ethernet headers included.", linkLabels, nil)
	sentPackets  = prometheus.NewDesc("railbed_link_packets_total", "Packets sent into the link.", linkLabels, nil)
	queueDrops   = prometheus.NewDesc("railbed_link_queue_drops_total", "Packets dropped by the queue in front of the link.", linkLabels, nil)
	queueBacklog = prometheus.NewDesc("railbed_link_queue_bytes", "Bytes waiting in front of the link.", linkLabels, nil)
	askedRate    = prometheus.NewDesc("railbed_link_rate_bits_per_second", "Rate that the plan asks of the link.", linkLabels, nil)
)

// Describe implements prometheus.Collector.
func (l *linkCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{sentBytes, sentPackets, queueDrops, queueBacklog, askedRate} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (l *linkCollector) Collect(metrics chan<- prometheus.Metric) {
	links, err := l.s.fabric.Links(context.Background())
	if err != nil {
		metrics <- prometheus.NewInvalidMetric(sentBytes, err)
		return
	}
	for _, link := range links {
		for direction, state := range map[string]struct {
			fabric.DirectionState
			sender fabric.EndState
		}{"a-to-b": {link.AToB, link.A}, "b-to-a": {link.BToA, link.B}} {
			counter := func(desc *prometheus.Desc, value uint64) {
				metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), link.Name, direction)
			}
			counter(sentBytes, state.sender.Counters.TxBytes)
			counter(sentPackets, state.sender.Counters.TxPackets)
			counter(queueDrops, state.Shaper.Drops)
			metrics <- prometheus.MustNewConstMetric(queueBacklog, prometheus.GaugeValue, float64(state.Shaper.BacklogBytes), link.Name, direction)
			metrics <- prometheus.MustNewConstMetric(askedRate, prometheus.GaugeValue, float64(state.Rate), link.Name, direction)
		}
	}
}
