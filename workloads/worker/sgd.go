package worker

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"math"
	"slices"
	"strings"
	"time"

	"railbed/internal/element"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
	"railbed/workloads/training/sgd"
)

// SGD is a training in which each operation is a step: the data of a collective are gradients. Kind
// and size of the collective follow from it. The job's seed determines the samples.
type SGD struct {
	Collective
	Config *spec.SGD
	// Secret is the key material that encrypts gradients. The job generates it.
	Secret privacy.Material
}

// Learning is the result of an SGD training.
type Learning struct {
	// Loss is the loss of each iteration in nats: the mean over all ranks and the samples that they
	// used, with the weights before the iteration.
	Loss []float64 `json:"loss"`
	// Held and Accuracy are the loss and the share of right answers after the last iteration, over
	// samples with which no rank has trained.
	Held     float64 `json:"held_out_loss"`
	Accuracy float64 `json:"held_out_accuracy"`
	// Clipped is the number of elements of gradients that were too large to encrypt and were
	// clipped, over all ranks and iterations.
	Clipped uint64 `json:"clipped,omitempty"`

	differed bool // some rank has had other weights than rank 0
}

// learningStep is a rank's result of an iteration.
type learningStep struct {
	Loss     float64 `json:"loss"`
	Digest   uint64  `json:"digest"` // of all bits of the rank's weights after the iteration
	Clipped  uint64  `json:"clipped,omitempty"`
	Held     float64 `json:"held,omitempty"`
	Accuracy float64 `json:"accuracy,omitempty"`
	// Unlike counts the elements of the sum of gradients that differ from the sum of all ranks'
	// gradients. Rank 0 counts them in the first iteration and, unless gradients are compressed, in
	// the last.
	Unlike uint64 `json:"unlike,omitempty"`
	// Message is the digest of the compressed gradient that the rank sent. Messages, which only
	// rank 0 sets, are the digests of the compressed gradients that it has from all ranks.
	Message  uint64   `json:"message,omitempty"`
	Messages []uint64 `json:"messages,omitempty"`
}

// add implements Results. It counts the ranks that have other weights than rank 0 as wrong elements. If
// none has ever had other weights, it counts wrong elements of the sum of gradients, or wrong compressed
// gradients.
func (l *Learning) add(o *Operation, ranks []rank.Done, _, _ time.Time) error {
	steps, err := own[learningStep](ranks)
	if err != nil {
		return err
	}
	var loss float64
	var wrong uint64
	for _, step := range steps {
		loss += step.Loss / float64(len(ranks))
		l.Clipped += step.Clipped
		if step.Digest != steps[0].Digest {
			wrong++
		}
	}
	// If weights have differed, rank 0 cannot compute the other ranks' gradients.
	if l.differed = l.differed || wrong > 0; !l.differed {
		wrong = steps[0].Unlike
		for rank, message := range steps[0].Messages {
			if message != steps[rank].Message {
				wrong++
			}
		}
	}
	l.Loss = append(l.Loss, loss)
	l.Held, l.Accuracy = steps[0].Held, steps[0].Accuracy
	o.Wrong += wrong
	return nil
}

// complete implements Work.
func (s SGD) complete(j *Job, problem reporter) {
	if j.Warmup != 0 || j.InPlace || j.Sweep != nil || j.Type != "" || j.Op != "" {
		problem("sgd: want no warm-up, in-place operations, sweep, type or op")
	}
	if !slices.Contains(spec.Exchanges, s.Config.Exchange) {
		problem("gradients by exchange %q: want %s", s.Config.Exchange, strings.Join(spec.Exchanges, ", "))
	}
	j.Kind, j.Size = s.Config.Collective(), sgd.SizeOf(s.Config, len(j.Ranks))
	if s.Config.Exchange != spec.ExchangeWhole {
		j.Type = element.Int32 // or bytes, as many as these elements have
	}
	if s.Config.Exchange == spec.ExchangeEncrypted {
		s.Secret = privacy.Generate()
	}
	j.Work = s
}

func (s SGD) of(j *Job, rank int) rank.Work {
	return sgdWork{collectiveWork: j.collective(rank), Config: s.Config, Secret: s.Secret}
}

func (SGD) results(*Job) Results { return &Learning{} }

// sgdWork is a rank's part in an SGD training.
type sgdWork struct {
	collectiveWork
	Config *spec.SGD        `json:"config"`
	Secret privacy.Material `json:"secret,omitempty"`
}

// Run implements rank.Work.
func (s sgdWork) Run(ctx context.Context, w *rank.Process) error {
	return s.runWrapped(ctx, w, func(p rank.Part, b buffers) (rank.Part, error) {
		return s.learn(&w.Config, p, b)
	})
}

// learning is a part whose data are gradients.
type learning struct {
	rank.Part
	memory         buffers
	rank, ranks    int
	last           int // iteration
	config         *spec.SGD
	replica        *sgd.Replica
	codec          sgd.Codec // nil: none
	mask           *sgd.Mask // nil: none
	gradient, mean []float32
	sealed         []int32
	isLost         []bool
	step           learningStep
	err            error // of fill or check
}

// learn makes gradients the data of a part.
func (s sgdWork) learn(c *rank.Config, p rank.Part, b buffers) (rank.Part, error) {
	config := sgd.ConfigOf(s.Config, s.Seed)
	n := config.Parameters()
	t := &learning{
		Part:     p,
		memory:   b,
		config:   s.Config,
		rank:     c.Rank,
		ranks:    c.Ranks,
		last:     len(c.Rounds()) - 1,
		replica:  sgd.New(config, c.Rank),
		codec:    sgd.CodecOf(s.Config),
		gradient: make([]float32, n), mean: make([]float32, n), isLost: make([]bool, n),
	}
	if s.Config.Exchange == spec.ExchangeEncrypted {
		var err error
		if t.mask, err = sgd.NewMask(s.Secret, c.Rank, c.Ranks); err != nil {
			return nil, err
		}
		clear(s.Secret)
		t.sealed = make([]int32, n)
	}
	return t, nil
}

// Fill computes the gradient and encodes it into the collective's input. It clears the output of
// the step before.
func (t *learning) Fill(id rank.OperationID) {
	clear(t.memory.Output)
	t.step = learningStep{Loss: t.replica.Gradient(id.Index, t.gradient)}
	t.finite(id, "the loss", t.step.Loss)
	switch {
	case t.err != nil:
	case t.codec != nil:
		t.codec.Encode(t.gradient, t.memory.Input)
		t.step.Message = digest(t.memory.Input)
	case t.mask != nil:
		var clipped int
		clipped, t.err = t.mask.Seal(id.Index, t.gradient, t.sealed)
		t.step.Clipped = uint64(clipped)
		for i, v := range t.sealed {
			binary.NativeEndian.PutUint32(t.memory.Input[4*i:], uint32(v))
		}
	default:
		for i, v := range t.gradient {
			binary.NativeEndian.PutUint32(t.memory.Input[4*i:], math.Float32bits(v))
		}
	}
}

func (t *learning) Operate(ctx context.Context, id rank.OperationID, more bool) (collective.Traffic, error) {
	if t.err != nil {
		return collective.Traffic{}, t.err
	}
	return t.Part.Operate(ctx, id, more)
}

// finite records the error that the training has diverged if a number is NaN or infinite.
func (t *learning) finite(id rank.OperationID, what string, number float64) {
	if math.IsNaN(number) || math.IsInf(number, 0) {
		t.err = fmt.Errorf("the training diverged at step %d: %s is not finite", id.Index, what)
	}
}

func (t *learning) Tell() (any, error) { return t.step, t.err }

// Check applies the sum of gradients to the weights. It never reports wrong elements. The
// coordinator has the digests of all ranks, and it checks there whether all ranks have the same
// weights and whether rank 0's sum is right.
func (t *learning) Check(id rank.OperationID, lost []collective.Loss) (wrong, short uint64) {
	clear(t.isLost)
	for _, l := range lost {
		for i := l.From; i < l.To && i < len(t.isLost); i++ {
			t.isLost[i] = true
		}
	}
	switch output := t.memory.Output; {
	case t.codec != nil:
		t.codec.Decode(output, t.mean)
		for message := range slices.Chunk(output, t.codec.Len()) {
			if t.rank == 0 {
				t.step.Messages = append(t.step.Messages, digest(message))
			}
		}
	case t.mask != nil:
		for i := range t.sealed {
			t.sealed[i] = int32(binary.NativeEndian.Uint32(output[4*i:]))
		}
		t.mask.Open(id.Index, t.sealed, t.mean)
	default:
		for i := range t.mean {
			t.mean[i] = math.Float32frombits(binary.NativeEndian.Uint32(output[4*i:]))
		}
	}
	if t.rank == 0 && (id.Index == 0 || id.Index == t.last && t.codec == nil) {
		t.step.Unlike = t.unlike(id.Index)
	}
	by := 1 / float32(t.ranks)
	for i := range t.mean {
		t.mean[i] *= by
	}
	t.replica.Apply(t.mean)
	t.step.Digest = t.replica.Digest()
	if id.Index == t.last {
		t.step.Held, t.step.Accuracy = t.replica.Evaluate()
		t.finite(id, "the loss over the held-out samples", t.step.Held)
	}
	for _, lost := range t.isLost {
		if lost {
			short++
		}
	}
	return 0, short
}

// digest returns the CRC of all bits of a message.
func digest(message []byte) uint64 { return crc64.Checksum(message, crcTable) }

var crcTable = crc64.MakeTable(crc64.ECMA)

// unlike counts the elements of mean, before its division, that are not the sum of all ranks'
// gradients. It computes that sum itself. Fixed-point numbers must match to the last bit, other
// numbers within the error of adding them up in any order. It ignores elements that were lost. For
// a compressed gradient the right value is the gradient without the part that the rank left out,
// which is known only in the first step.
func (t *learning) unlike(step int) (count uint64) {
	sum, size := make([]float64, len(t.mean)), make([]float64, len(t.mean))
	for rank := range t.ranks {
		t.replica.GradientOf(rank, step, t.gradient)
		left := t.leftOut()
		for i, g := range t.gradient {
			v := float64(g)
			if t.mask != nil {
				v, _ = t.mask.Fixed(g)
			}
			size[i] += math.Abs(v)
			if left != nil {
				v -= float64(left[i])
			}
			sum[i] += v
		}
	}
	for i, got := range t.mean {
		// Twice the bound of Higham, "Accuracy and Stability", 4.2.
		want, off := sum[i], float64(t.ranks)*size[i]*0x1p-23
		switch {
		case t.mask != nil:
			want, off = float64(sgd.Float(int32(sum[i]))), 0
		case t.codec != nil:
			off *= 2 // the compressed value of an element is up to twice as large
		}
		if !t.isLost[i] && !(math.Abs(float64(got)-want) <= off) {
			count++
		}
	}
	return count
}

// leftOut returns the part of gradient that a new codec leaves out, or nil if there is no codec.
func (t *learning) leftOut() []float32 {
	if t.codec == nil {
		return nil
	}
	codec := sgd.CodecOf(t.config)
	codec.Encode(t.gradient, make([]byte, codec.Len()))
	return codec.Left()
}
