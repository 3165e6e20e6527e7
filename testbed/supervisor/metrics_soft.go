package supervisor

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/queue"
)

var (
	portPriority = []string{"port", "priority"}
	portReason   = []string{"port", "reason", "priority"}

	softSent = prometheus.NewDesc("railbed_port_sent_packets_total",
		"Packets that the port sent, by priority.", portPriority, nil)
	softDepth = prometheus.NewDesc("railbed_port_queue_bytes", "Bytes that wait at the port, by priority.",
		portPriority, nil)
	softPaused = prometheus.NewDesc("railbed_port_paused", "1 while the far end has paused the priority.",
		portPriority, nil)
	softPauses = prometheus.NewDesc("railbed_port_pauses_received_total",
		"Pause frames that the port received, by priority.", portPriority, nil)
	softAsked = prometheus.NewDesc("railbed_port_pauses_sent_total",
		"Pause frames that the port sent, by priority.", portPriority, nil)
	softReceived = prometheus.NewDesc("railbed_port_received_packets_total",
		"Packets that the port received.", []string{"port"}, nil)
	softMarked = prometheus.NewDesc("railbed_port_marked_packets_total",
		"Packets on which the port set congestion experienced, by reason and priority.", portReason, nil)
	softTrimmed = prometheus.NewDesc("railbed_port_trimmed_packets_total",
		"Packets whose payload the port cut away, by reason and original priority.", portReason, nil)
	softDropped = prometheus.NewDesc("railbed_port_dropped_packets_total",
		"Packets that the port dropped, by reason and priority.", portReason, nil)
	softHops = prometheus.NewDesc("railbed_port_int_hops_total",
		"Hops that the port wrote into telemetry blocks.", []string{"port"}, nil)
	softNoHop = prometheus.NewDesc("railbed_port_int_unwritten_hops_total",
		"Telemetry blocks into which the port could not write its hop, by reason.",
		[]string{"port", "reason"}, nil)
)

var portDescs = []*prometheus.Desc{
	softSent, softDepth, softPaused, softPauses, softAsked, softReceived, softMarked, softTrimmed,
	softDropped, softHops, softNoHop,
}

// collectPort collects the metrics of a port: every priority, and every reason with every priority
// that can occur there. They exist from the start, so that a rate includes the first packet. With
// all eight priorities there are 18 counters of drops for an emulated NIC and about 80 for a port
// of a routing switch. Without the priority as label there would be 11. Reasons that cannot occur,
// such as a headroom without lossless priorities, have no counter unless they were counted.
func collectPort(metrics chan<- prometheus.Metric, p *softswitch.PortState, can softswitch.Foreseen) {
	count := counting(metrics, p.Port)
	gauge := func(desc *prometheus.Desc, value float64, priority string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, p.Port, priority)
	}
	count(softReceived, p.Counters.Received.Packets)
	collectReasons(count, softDropped, p.Drops, can.Drops)
	collectReasons(count, softMarked, p.Marks, can.Marks)
	collectReasons(count, softTrimmed, p.Trims, can.Trims)
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

// collectReasons collects the counts by reason and priority, including zeros of reasons that can
// occur.
func collectReasons(count func(*prometheus.Desc, uint64, ...string), desc *prometheus.Desc,
	counted softswitch.ByReason, can map[softswitch.Reason]queue.Mask) {
	for why, name := range softswitch.ReasonNames() {
		for q, n := range counted[name] {
			if n > 0 || can[softswitch.Reason(why)].Has(uint8(q)) {
				count(desc, n, name, strconv.Itoa(q))
			}
		}
	}
}

// collectTelemetry collects the telemetry counters of a port of a switch that writes telemetry.
func collectTelemetry(metrics chan<- prometheus.Metric, p *softswitch.PortState) {
	count := counting(metrics, p.Port)
	c := &p.Counters.INT
	count(softHops, c.Written)
	count(softNoHop, c.Full, "int-full")
	count(softNoHop, c.Invalid, "int-invalid")
	count(softNoHop, c.NoRoom, "int-no-room")
}

// The label of an aggregation job is not "job", because Prometheus uses that label for scrape
// targets.
var (
	jobLabels  = []string{"switch", "job_id"}
	sumWorkers = prometheus.NewDesc("railbed_aggregation_workers", "Workers of the job.", jobLabels, nil)
	sumEpoch   = prometheus.NewDesc("railbed_aggregation_epoch", "Epoch that the job is in.", jobLabels,
		nil)
	sumWaiting = prometheus.NewDesc("railbed_aggregation_waiting_sums",
		"Sets of slots whose sums wait for workers or for the parent switch.", jobLabels, nil)
	sumOver = prometheus.NewDesc("railbed_aggregation_timed_out",
		"1 after a worker or switch timed out, until a new epoch begins, else 0.", jobLabels, nil)
	sumUpdates = prometheus.NewDesc("railbed_aggregation_updates_total", "Updates that were added.",
		jobLabels, nil)
	sumRepeats = prometheus.NewDesc("railbed_aggregation_repeated_updates_total",
		"Updates whose worker was in the sum already.", jobLabels, nil)
	sumResults = prometheus.NewDesc("railbed_aggregation_results_total",
		"Sums that were complete and were sent to all workers.", jobLabels, nil)
	sumAgain = prometheus.NewDesc("railbed_aggregation_repeated_results_total",
		"Results that were sent again, to one worker.", jobLabels, nil)
	sumPartials = prometheus.NewDesc("railbed_aggregation_partial_sums_total",
		"Partial sums that were sent to the parent switch.", jobLabels, nil)
	sumReasked = prometheus.NewDesc("railbed_aggregation_repeated_partial_sums_total",
		"Partial sums that were sent to the parent switch again.", jobLabels, nil)
	sumRejected = prometheus.NewDesc("railbed_aggregation_rejected_updates_total",
		"Updates that were answered with a reject, by its code.", []string{"switch", "job_id", "code"}, nil)
	sumDropped = prometheus.NewDesc("railbed_aggregation_dropped_messages_total",
		"Messages that were dropped without an answer, by reason.", []string{"switch", "job_id", "reason"},
		nil)
	sumForgotten = prometheus.NewDesc("railbed_aggregation_unsent_messages_total",
		"Results, partial sums and rejects that were not sent because packet memory was used up.",
		jobLabels, nil)
)

var aggregationDescs = []*prometheus.Desc{
	sumWorkers, sumEpoch, sumWaiting, sumOver, sumUpdates, sumRepeats, sumResults, sumAgain, sumPartials,
	sumReasked, sumRejected, sumDropped, sumForgotten,
}

// collectAggregation collects the metrics of a job: every code and every reason that occurred.
func collectAggregation(metrics chan<- prometheus.Metric, s *softswitch.AggregationState) {
	job := strconv.Itoa(int(s.Job))
	count := counting(metrics, s.Switch, job)
	gauge := func(desc *prometheus.Desc, value float64) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, s.Switch, job)
	}
	over := 0.0
	if s.Over {
		over = 1
	}
	gauge(sumWorkers, float64(s.Workers))
	gauge(sumEpoch, float64(s.Epoch))
	gauge(sumWaiting, float64(s.Waiting))
	gauge(sumOver, over)
	count(sumUpdates, s.Updates)
	count(sumRepeats, s.Repeats)
	count(sumResults, s.Results)
	count(sumAgain, s.Again)
	count(sumPartials, s.Partials)
	count(sumReasked, s.Reasked)
	count(sumForgotten, s.NoMemory)
	for code, n := range s.Rejected {
		count(sumRejected, n, code)
	}
	for reason, n := range s.Dropped {
		count(sumDropped, n, reason)
	}
}
