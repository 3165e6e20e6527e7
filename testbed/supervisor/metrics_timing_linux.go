package supervisor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"railbed/fabric/softswitch/live"
)

var (
	nicLabels      = []string{"node", "nic"}
	arrivedLate    = prometheus.NewDesc("railbed_arrival_lateness_seconds", "How long after they were due watched frames were at the nodes, by the kernel's receive stamps.", nil, nil)
	arrivedLateAt  = prometheus.NewDesc("railbed_nic_arrival_lateness_seconds", "The same for each NIC.", nicLabels, nil)
	releasedLate   = prometheus.NewDesc("railbed_release_lateness_seconds", "How long after they were due frames were given to the kernel.", nil, nil)
	unitSeconds    = prometheus.NewDesc("railbed_smallest_time_seconds", "The least delay and frame time of the links that carried something.", nil, nil)
	windowCount    = prometheus.NewDesc("railbed_timing_windows_total", "Seconds in which frames were watched.", nil, nil)
	lateCount      = prometheus.NewDesc("railbed_timing_late_windows_total", "Seconds in which 1 % of the frames were later than the smallest time.", nil, nil)
	threadRan      = prometheus.NewDesc("railbed_timing_thread_cpu_seconds_total", "Time that the timing thread was on a CPU.", nil, nil)
	threadWaited   = prometheus.NewDesc("railbed_timing_thread_wait_seconds_total", "Time that the timing thread waited for a CPU.", nil, nil)
	emulatorLosses = prometheus.NewDesc("railbed_emulator_lost_frames_total", "Frames that the emulator lost and the model did not.", nicLabels, nil)
)

var timingDescs = []*prometheus.Desc{
	arrivedLate, arrivedLateAt, releasedLate, unitSeconds, windowCount, lateCount, threadRan, threadWaited, emulatorLosses,
}

// collectTiming shows how exactly soft switches keep time, in real time.
func collectTiming(metrics chan<- prometheus.Metric, state *live.State) {
	t := &state.Timing
	counts := map[float64]uint64{}
	for i, bound := range live.Bounds() {
		if i < len(t.Counts) {
			counts[bound.Seconds()] = t.Counts[i]
		}
	}
	metrics <- prometheus.MustNewConstHistogram(arrivedLate, t.Arrivals.Frames, t.Arrivals.Sum.Seconds(), counts)
	metrics <- summary(releasedLate, state.Late)
	for i := range state.NICs {
		nic := &state.NICs[i]
		metrics <- summary(arrivedLateAt, nic.Arrivals, nic.Node, nic.NIC)
		metrics <- prometheus.MustNewConstMetric(emulatorLosses, prometheus.CounterValue, float64(nic.Lost()), nic.Node, nic.NIC)
	}
	if state.RingDropped > 0 {
		metrics <- prometheus.MustNewConstMetric(emulatorLosses, prometheus.CounterValue, float64(state.RingDropped), "*", "*")
	}
	metrics <- prometheus.MustNewConstMetric(unitSeconds, prometheus.GaugeValue, t.Unit.Seconds())
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

func summary(desc *prometheus.Desc, q live.Quantiles, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstSummary(desc, q.Frames, q.Sum.Seconds(), map[float64]float64{
		0.5: q.P50.Seconds(), 0.99: q.P99.Seconds(), 1: q.Worst.Seconds(),
	}, labels...)
}
