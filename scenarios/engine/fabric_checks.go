package engine

import (
	"cmp"

	"railbed/capture/verify"
	"railbed/testbed/spec"
)

// fabricCheck makes a check of what a fabric did to packets.
func fabricCheck(p *spec.PacketsCheck) verify.Check {
	switch {
	case p.Marks != nil:
		k := p.Marks
		return verify.NewMarks(verify.Selection{At: k.At, From: k.From, To: k.To}, bound(k.Share, spec.ShareBound), bound(k.Count, spec.CountBound))
	case p.Drops != nil:
		k := p.Drops
		return verify.NewDrops(verify.Selection{At: k.At, From: k.From, To: k.To}, k.Reason, bound(k.Count, spec.CountBound))
	case p.Lossless != nil:
		k := p.Lossless
		return verify.NewLossless(verify.Selection{From: k.From, To: k.To}, priority(k.Priority))
	case p.Trims != nil:
		return verify.NewTrims(verify.Selection{At: p.Trims.At}, bound(cmp.Or(p.Trims.Count, ">= 1"), spec.CountBound))
	case p.Pauses != nil:
		k := p.Pauses
		return verify.NewPauses(verify.Selection{At: k.At}, priority(k.Priority), bound(k.Count, spec.CountBound), bound(k.Paused, spec.DurationBound), k.Order)
	case p.Deadlock != "":
		return verify.NewDeadlock(p.Deadlock == "some")
	case p.Reordering != nil:
		return verify.NewReordering(verify.Selection{From: p.Reordering.From, To: p.Reordering.To}, bound(p.Reordering.Share, spec.ShareBound))
	case p.QueueDepth != nil:
		k := p.QueueDepth
		return verify.NewQueueDepth(verify.Selection{At: k.At}, priority(k.Priority), bound(k.Max, spec.BytesBound), bound(k.P99, spec.BytesBound))
	}
	return nil
}

// bound is a comparison of the file, which has been checked, or nil.
func bound(text string, kind spec.BoundKind) *spec.Bound {
	b, err := spec.ParseBound(text, kind)
	if err != nil {
		return nil
	}
	return &b
}

// priority is a queue, or -1 for any.
func priority(q *int) int {
	if q == nil {
		return -1
	}
	return *q
}

// fabricCheckName is what reports call such a check.
func fabricCheckName(p *spec.PacketsCheck) string {
	switch {
	case p.Marks != nil:
		return titled("marks", p.Marks.At, p.Marks.From, p.Marks.To)
	case p.Drops != nil:
		return titled("drops", p.Drops.At, p.Drops.From, p.Drops.To, p.Drops.Reason)
	case p.Lossless != nil:
		return titled("lossless", p.Lossless.From, p.Lossless.To)
	case p.Trims != nil:
		return titled("trims", p.Trims.At)
	case p.Pauses != nil:
		return titled("pauses", p.Pauses.At)
	case p.Deadlock != "":
		return "deadlock " + p.Deadlock
	case p.Reordering != nil:
		return titled("reordering", p.Reordering.From, p.Reordering.To)
	case p.QueueDepth != nil:
		return titled("queue-depth", p.QueueDepth.At)
	}
	return "packets"
}

// titled joins the words that there are.
func titled(name string, words ...string) string {
	for _, word := range words {
		if word != "" {
			name += " " + word
		}
	}
	return name
}
