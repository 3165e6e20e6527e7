package interop

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha3"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"railbed/internal/infiniband"
	"railbed/transports/roce"
	"railbed/transports/roce/queuepair"
)

// ownPart is a part of this test binary that runs in a node: the end that is ours.
const ownPart = "interop"

// ownRetries is how often silence is answered: as rdma_rxe, whose 7 has no end, but
// for a minute.
const ownRetries = 900

var operations = []queuepair.Op{queuepair.Send, queuepair.SendImm, queuepair.Write, queuepair.WriteImm,
	queuepair.Read, queuepair.CompareSwap, queuepair.FetchAdd}

// own carries out orders on devices of ours.
type own struct {
	devices map[netip.Addr]*roce.Device
	queues  map[string]*ownQueue
}

// ownQueue is a queue pair with its memory.
type ownQueue struct {
	*roce.QueuePair
	region   *roce.Region
	memory   []byte
	messages []message // that were posted, by their ids
}

// fill returns the initial content of a queue's memory.
func fill(seed string, size int) []byte { return sha3.SumSHAKE128([]byte(seed), size) }

func ownMain([]string) int {
	o := &own{devices: map[netip.Addr]*roce.Device{}, queues: map[string]*ownQueue{}}
	input := bufio.NewReader(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			break
		}
		var (
			what order
			a    answer
		)
		if err = json.Unmarshal(line, &what); err == nil {
			a, err = o.serve(&what)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if output.Encode(a) != nil {
			break
		}
	}
	for _, d := range o.devices {
		if err := d.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

func (o *own) serve(what *order) (a answer, err error) {
	switch what.Do {
	case "open":
		return o.open(what)
	case "counters":
		a.Counters = map[string]uint64{}
		for _, d := range o.devices {
			c := d.Counters()
			a.Counters["bad_icrc"] += c.BadICRC
			a.Counters["resent"] += c.Resent
			a.Counters["duplicates"] += c.Duplicates
			a.Counters["early"] += c.Early
			a.Counters["naks"] += c.Naks
			a.Counters["timeouts"] += c.Timeouts
			a.Counters["ignored"] += c.Ignored
		}
		return a, nil
	}
	q := o.queues[what.Queue]
	if q == nil {
		return a, fmt.Errorf("no queue %q", what.Queue)
	}
	switch what.Do {
	case "connect":
		err = q.Connect(roce.Place{Addr: what.At, QPN: infiniband.QPN(what.QPN),
			PSN: infiniband.PSN(what.PSN)})
	case "receive":
		for i, p := range what.Places {
			if err = q.PostReceive(uint64(what.From+i), q.memory[p[0]:][:p[1]]); err != nil {
				break
			}
		}
	case "post":
		err = q.post(what)
	case "wait":
		a.Done, err = q.wait(what.Count, time.Duration(what.Seconds)*time.Second)
	case "report":
		if a.State = "RTS"; q.Err() != nil {
			a.State = q.Err().Error()
		}
		q.region.Look(func(memory []byte) {
			for _, p := range what.Ranges {
				a.Sums = append(a.Sums, fmt.Sprintf("%x", sha256.Sum256(memory[p[0]:][:p[1]])))
			}
		})
	case "close":
		delete(o.queues, what.Queue)
		if err = q.Close(); err == nil {
			err = q.region.Close()
		}
	}
	return a, err
}

func (o *own) open(what *order) (a answer, err error) {
	d := o.devices[what.At]
	if d == nil {
		if d, err = roce.OpenDevice(roce.DeviceConfig{Addr: what.At, NIC: what.Device}); err != nil {
			return a, err
		}
		o.devices[what.At] = d
	}
	q := &ownQueue{memory: fill(what.Seed, what.Size)}
	if q.region, err = d.Register(q.memory,
		queuepair.RemoteWrite|queuepair.RemoteRead|queuepair.RemoteAtomic); err != nil {
		return a, err
	}
	q.QueuePair, err = d.NewQueuePair(queuepair.Config{
		MTU:         what.MTU,
		SendPSN:     infiniband.PSN(what.PSN),
		Reads:       what.Reads,
		RemoteReads: what.Reads,
		Timeout:     infiniband.AckTimeout(what.Timeout),
		Retries:     cmp.Or(what.Retries, ownRetries),
	}, nil)
	if err != nil {
		return a, err
	}
	o.queues[what.Queue] = q
	return answer{QPN: uint32(q.Local().QPN), RKey: q.region.RKey, Base: q.region.Base}, nil
}

func (q *ownQueue) post(what *order) error {
	i := slices.IndexFunc(operations, func(op queuepair.Op) bool { return op.String() == what.Op })
	if i < 0 {
		return fmt.Errorf("no operation %q", what.Op)
	}
	for _, m := range what.Messages {
		r := queuepair.Request{ID: uint64(len(q.messages)), Op: operations[i],
			Address: what.Base + uint64(m.Remote), RKey: what.RKey, Imm: m.Imm, Compare: m.Compare,
			Operand: m.Operand}
		if !atomic(what.Op) {
			r.Local = [][]byte{q.memory[m.Local:][:m.Length]}
		}
		q.messages = append(q.messages, m)
		if _, err := q.Post(r); err != nil {
			return err
		}
	}
	return nil
}

// wait is the next completions, so many, or fewer when the time is over. What an
// atomic operation found goes where verbs put it.
func (q *ownQueue) wait(count int, limit time.Duration) (list []done, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for len(list) < count && q.Completions().Wait(ctx) == nil {
		var batch [64]roce.Completion
		n := q.Completions().Poll(batch[:min(len(batch), count-len(list))])
		for _, c := range batch[:n] {
			one := done{ID: int(c.ID)}
			if c.Err != nil {
				one.Status, one.Why = -1, c.Err.Error()
			}
			switch {
			case c.Op == queuepair.Receive:
				if one.Bytes = c.Bytes; c.HasImm {
					one.Imm = &c.Imm
				}
			case c.Err == nil && atomic(c.Op.String()):
				at := q.messages[c.ID].Local
				q.region.Look(func(memory []byte) { binary.LittleEndian.PutUint64(memory[at:], c.Original) })
			}
			list = append(list, one)
		}
	}
	return list, nil
}
