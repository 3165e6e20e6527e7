package supervisor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"railbed/fabric/softswitch/live"
)

var (
	nicLabels     = []string{"node", "nic"}
	linkNICLabels = []string{"link", "node", "nic"}
	arrivedLate   = prometheus.NewDesc("railbed_arrival_lateness_seconds",
		"Time from the due time of watched frames to their arrival in the nodes' kernels.", nil, nil)
	arrivedLateAt = prometheus.NewDesc("railbed_nic_arrival_lateness_seconds",
		"Time from the due time of watched frames to their arrival in the nodes' kernels, by NIC.",
		linkNICLabels, nil)
	releasedLate = prometheus.NewDesc("railbed_release_lateness_seconds",
		"Time from the due time of frames to their release to the kernel.", nil, nil)
	unitSeconds = prometheus.NewDesc("railbed_smallest_time_seconds",
		"Smallest time of the links that carried something: the least delay or frame time.", nil, nil)
	windowCount = prometheus.NewDesc("railbed_timing_windows_total",
		"Windows of a second, or longer if few frames arrived, in which frames were watched.", nil, nil)
	lateCount = prometheus.NewDesc("railbed_timing_late_windows_total",
		"Windows in which more than 1 % of the frames were later than the smallest time.", nil, nil)
	threadRan = prometheus.NewDesc("railbed_timing_thread_cpu_seconds_total",
		"Time that the timing thread was on a CPU.", nil, nil)
	threadWaited = prometheus.NewDesc("railbed_timing_thread_wait_seconds_total",
		"Time that the timing thread waited for a CPU.", nil, nil)
	emulatorLosses = prometheus.NewDesc("railbed_emulator_lost_frames_total",
		"Frames that the emulator lost although the model did not drop them.", nicLabels, nil)
)

var timingDescs = []*prometheus.Desc{
	arrivedLate, arrivedLateAt, releasedLate, unitSeconds, windowCount, lateCount, threadRan, threadWaited,
	emulatorLosses,
}

// collectTiming collects how exactly soft switches keep time, in real time. links maps "node:nic"
// to links.
func collectTiming(metrics chan<- prometheus.Metric, state *live.State, links map[string]string) {
	t := &state.Timing
	metrics <- histogram(arrivedLate, t.Arrivals)
	metrics <- histogram(releasedLate, state.Late)
	for i := range state.NICs {
		nic := &state.NICs[i]
		metrics <- histogram(arrivedLateAt, nic.Arrivals, links[nic.Node+":"+nic.NIC], nic.Node, nic.NIC)
		metrics <- prometheus.MustNewConstMetric(emulatorLosses, prometheus.CounterValue, float64(nic.Lost()),
			nic.Node, nic.NIC)
	}
	if state.RingDropped > 0 {
		metrics <- prometheus.MustNewConstMetric(emulatorLosses, prometheus.CounterValue,
			float64(state.RingDropped), "*", "*")
	}
	if t.Unit > 0 {
		metrics <- prometheus.MustNewConstMetric(unitSeconds, prometheus.GaugeValue, t.Unit.Seconds())
	}
	metrics <- prometheus.MustNewConstMetric(windowCount, prometheus.CounterValue, float64(t.Windows))
	metrics <- prometheus.MustNewConstMetric(lateCount, prometheus.CounterValue, float64(t.Late))
	if t.Thread.Known {
		counter := func(desc *prometheus.Desc, d time.Duration) {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, d.Seconds())
		}
		counter(threadRan, t.Thread.Ran)
		counter(threadWaited, t.Thread.Waited)
	}
}

// histogram has all buckets from the start: 22, including the bucket for the rest.
func histogram(desc *prometheus.Desc, h live.Histogram, labels ...string) prometheus.Metric {
	counts := map[float64]uint64{}
	for i, bound := range live.Bounds() {
		counts[bound.Seconds()] = 0
		if i < len(h.Counts) {
			counts[bound.Seconds()] = h.Counts[i]
		}
	}
	return prometheus.MustNewConstHistogram(desc, h.Frames, h.Sum.Seconds(), counts, labels...)
}
