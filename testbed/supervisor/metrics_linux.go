package supervisor

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"railbed/fabric"
	"railbed/fabric/softswitch"
	"railbed/internal/usage"
	"railbed/plan"
)

// metrics returns the registry behind /metrics: the supervisor's own process, and the fabric.
func (s *supervisor) metrics() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), &fabricCollector{s: s})
	return registry
}

// fabricCollector collects metrics of links, of the ports of soft switches, of their aggregation
// and of their timing. It reads the fabric once per scrape.
type fabricCollector struct{ s *supervisor }

// Describe implements prometheus.Collector.
func (c *fabricCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range slices.Concat(linkDescs, portDescs, aggregationDescs, timingDescs, nodeDescs) {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *fabricCollector) Collect(metrics chan<- prometheus.Metric) {
	links, soft, err := c.s.fabric.State(context.Background())
	if err != nil {
		metrics <- prometheus.NewInvalidMetric(sentBytes, err)
		return
	}
	names := map[string]string{}
	for i := range links {
		collectLink(metrics, &links[i])
		for _, side := range []struct {
			fabric.EndState
			sends plan.Direction
		}{{links[i].A, links[i].AToB.Direction}, {links[i].B, links[i].BToA.Direction}} {
			if side.Soft == nil {
				continue
			}
			names[side.Node+":"+side.Port] = links[i].Name
			collectPort(metrics, side.Soft,
				softswitch.Foresee(c.s.plan, plan.End{Node: side.Node, Port: side.Port}, side.sends))
			if c.telling(side.Node) {
				collectTelemetry(metrics, side.Soft)
			}
		}
	}
	if soft != nil {
		collectTiming(metrics, soft, names)
		for i := range soft.Aggregation {
			collectAggregation(metrics, &soft.Aggregation[i])
		}
	}
	c.collectNodes(metrics)
}

var (
	nodeDrops = prometheus.NewDesc("railbed_node_drops_total",
		"Packets that the node's kernel dropped.", []string{"node", "reason"}, nil)
	programTime = prometheus.NewDesc("railbed_node_programs_seconds_total",
		"Time that the node's programs ran and waited for a CPU, over all threads, and were throttled.",
		[]string{"node", "state"}, nil)
	nodeDescs = []*prometheus.Desc{nodeDrops, programTime}
)

// collectNodes collects what the kernel counts of the nodes.
func (c *fabricCollector) collectNodes(metrics chan<- prometheus.Metric) {
	p, _ := c.s.running()
	states := make([]NodeState, len(p.Nodes))
	for i, n := range p.Nodes {
		states[i].Name = n.Name
	}
	if err := c.s.countNodes(context.Background(), p, states, true); err != nil {
		metrics <- prometheus.NewInvalidMetric(nodeDrops, err)
		return
	}
	for _, n := range states {
		if n.Stack == nil {
			continue
		}
		count := counting(metrics, n.Name)
		for _, reason := range usage.Reasons {
			count(nodeDrops, n.Stack.Drops[reason], reason)
		}
		for state, time := range map[string]time.Duration{"ran": n.Programs.Ran,
			"waited": n.Programs.Waited, "throttled": n.Programs.Throttled} {
			metrics <- prometheus.MustNewConstMetric(programTime, prometheus.CounterValue, time.Seconds(),
				n.Name, state)
		}
	}
}

// counting returns a function that collects counters with the given labels. The labels of a counter
// itself follow them.
func counting(metrics chan<- prometheus.Metric, of ...string) func(desc *prometheus.Desc, value uint64,
	labels ...string) {
	return func(desc *prometheus.Desc, value uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value),
			slices.Concat(of, labels)...)
	}
}

// telling reports whether a node or switch writes telemetry.
func (c *fabricCollector) telling(name string) bool {
	sw := c.s.plan.Switch(name)
	return sw != nil && sw.Soft != nil && sw.Soft.INT
}

var (
	linkLabels = []string{"link", "direction"}
	sentBytes  = prometheus.NewDesc("railbed_link_bytes_total",
		"Bytes sent into the link, Ethernet headers included.", linkLabels, nil)
	sentPackets = prometheus.NewDesc("railbed_link_packets_total", "Packets sent into the link.", linkLabels,
		nil)
	queueDrops = prometheus.NewDesc("railbed_link_queue_drops_total",
		"Packets dropped by the queue in front of the link.", linkLabels, nil)
	queueBacklog = prometheus.NewDesc("railbed_link_queue_bytes", "Bytes waiting in front of the link.",
		linkLabels, nil)
	askedRate = prometheus.NewDesc("railbed_link_rate_bits_per_second",
		"Rate that the plan asks of the link.", linkLabels, nil)
)

var linkDescs = []*prometheus.Desc{sentBytes, sentPackets, queueDrops, queueBacklog, askedRate}

// collectLink collects both directions of a link, from the counters at their senders.
func collectLink(metrics chan<- prometheus.Metric, link *fabric.LinkState) {
	for direction, state := range map[string]struct {
		fabric.DirectionState
		sender fabric.EndState
	}{plan.AToB: {link.AToB, link.A}, plan.BToA: {link.BToA, link.B}} {
		count := counting(metrics, link.Name, direction)
		count(sentBytes, state.sender.Counters.TxBytes)
		count(sentPackets, state.sender.Counters.TxPackets)
		count(queueDrops, state.Shaper.Drops)
		metrics <- prometheus.MustNewConstMetric(queueBacklog, prometheus.GaugeValue,
			float64(state.Shaper.BacklogBytes), link.Name, direction)
		metrics <- prometheus.MustNewConstMetric(askedRate, prometheus.GaugeValue, float64(state.Rate),
			link.Name, direction)
	}
}
