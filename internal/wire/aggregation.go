package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
)

// Layout of an in-network aggregation message, fabric/softswitch/PROTOCOL.md:
// offsets in bytes from the UDP payload.
const (
	aggVersionKind = 0 // 4 bits each
	aggFlags       = 1
	aggOpType      = 2 // 4 bits each
	aggCode        = 3
	aggJob         = 4
	aggEpoch       = 6
	aggSlot        = 8
	aggWorker      = 10
	aggFanIn       = 11
	aggKey         = 12
	aggRound       = 16
	aggOffset      = 20
	aggBitmap      = 24
	aggElements    = 32
	aggScale       = 34
	aggNextScale   = 35

	AggregationLen = 36 // bytes of the header

	// AggregationVersion is the version that this package reads and writes.
	AggregationVersion = 3
	// AggregationMaxFanIn is the largest number of workers that one slot can add up: the bits of
	// the bitmap.
	AggregationMaxFanIn = 64
	// AggregationMaxElements is the number of elements of any type that fit a UDP datagram over
	// IPv6 of 64 KiB; an MTU allows fewer.
	AggregationMaxElements = (0xFFFF - UDPLen - AggregationLen) / 4
)

// AggregationKind is the kind of a message.
type AggregationKind uint8

// Kinds of messages.
const (
	AggregationUpdate AggregationKind = 1 // a worker's contribution, to the switch
	AggregationResult AggregationKind = 2 // the sum, to a worker
	AggregationReject AggregationKind = 3 // the switch refuses an update
	// AggregationPartial is the sum of the workers below a switch, sent to its parent switch.
	AggregationPartial AggregationKind = 4
)

// AggregationType is the type of the elements.
type AggregationType uint8

// Types of elements, of 4 bytes except the last two.
const (
	AggregationFloat32  AggregationType = 1 // IEEE 754 binary32
	AggregationFixed    AggregationType = 2 // two's complement, times 2^Scale; sums only
	AggregationInt32    AggregationType = 3 // two's complement; sums are modulo 2^32
	AggregationBFloat16 AggregationType = 4 // the upper half of a float32
	AggregationFloat16  AggregationType = 5 // IEEE 754 binary16
)

// Size is the size of an element in bytes.
func (t AggregationType) Size() int {
	if t == AggregationBFloat16 || t == AggregationFloat16 {
		return 2
	}
	return 4
}

// AggregationOp is the operation that combines the elements of several workers.
type AggregationOp uint8

// Operations. Greatest and least are maximumNumber and minimumNumber of IEEE 754-2019.
const (
	AggregationSum AggregationOp = 0
	AggregationMax AggregationOp = 1
	AggregationMin AggregationOp = 2
)

// Flags of a message.
const (
	// AggregationSet selects one of the slot's two sets: the version bit. It is the lowest bit of
	// the round.
	AggregationSet uint8 = 0x01
	// AggregationRepeat marks an update that the worker has sent before. In a result it means that
	// the result answers a repeated update. Nothing depends on it.
	AggregationRepeat uint8 = 0x02
	// AggregationSaturated is set if a fixed-point sum left the range of an int32 and was clamped
	// to the nearest end of it.
	AggregationSaturated uint8 = 0x04

	aggKeyPurpose = "railbed aggregation"
	aggKnownFlags = AggregationSet | AggregationRepeat | AggregationSaturated
)

// AggregationCode is the reason why an update was rejected.
type AggregationCode uint8

// Codes of a reject.
const (
	AggregationVersionUnknown AggregationCode = 1 + iota // the reject has the switch's version
	AggregationJobUnknown
	AggregationEpochOld    // Epoch is the current one
	AggregationWorkerWrong // worker, fan-in or key do not fit the job
	AggregationSlotUnknown
	AggregationMismatch // round, type, operation, offset, scale or elements do not fit the slot's
	AggregationTimeout  // the slot gave up waiting for the workers whose bits in Bitmap are 0

	// AggregationCodes is one more than the last code.
	AggregationCodes = int(AggregationTimeout) + 1
)

var aggregationCodeNames = [AggregationCodes]string{
	"none", "version-unknown", "job-unknown", "epoch-old", "worker-wrong", "slot-unknown", "mismatch",
	"timeout",
}

// String is the code in words with hyphens.
func (c AggregationCode) String() string {
	if int(c) < AggregationCodes {
		return aggregationCodeNames[c]
	}
	return "unknown"
}

// Aggregation is an aggregation message.
type Aggregation []byte

// AggregationFields are the fields of a message's header.
type AggregationFields struct {
	Kind  AggregationKind
	Flags uint8
	Type  AggregationType
	Op    AggregationOp
	Code  AggregationCode
	Job   uint16
	Epoch uint16 // counts the incarnations of the job
	Slot  uint16 // index in the job's pool
	// Worker is the contributor, in a partial sum the lowest contributor, in a result the receiver.
	// FanIn is the number of workers in the job.
	Worker, FanIn uint8
	// Key is the secret of the worker or switch for this job and epoch.
	Key uint32
	// Round counts the chunks of the slot, from 0.
	Round uint32
	// Offset is the first element's index in the tensor.
	Offset uint32
	// Bitmap has bit n set if the elements include worker n's.
	Bitmap   uint64
	Elements uint16
	// Scale applies to fixed point: an element's value is its integer times 2^Scale.
	Scale int8
	// NextScale, in an update, is the least scale that the worker's next chunk in this slot needs.
	// In a result it is the greatest scale that a worker requested.
	NextScale int8
}

// AggregationMessageLen is the length in bytes of a message with the given number of elements of a
// type.
func AggregationMessageLen(t AggregationType, elements int) int {
	return AggregationLen + t.Size()*elements
}

// AggregationLongest is the length of the longest message with the given number of elements.
func AggregationLongest(elements int) int { return AggregationMessageLen(AggregationFloat32, elements) }

// Valid reports whether the bytes are a message of this version that is consistent in itself: a
// valid header and exactly its elements.
func (a Aggregation) Valid() bool {
	return a.ValidHeader() && len(a) == AggregationLen+a.DataLen()
}

// ValidHeader reports whether the bytes begin with a header that is consistent in itself. Kind,
// type, operation and flags must be known. The set must match the round, the worker must be below
// the fan-in, and the bitmap within it. An update has one worker in the bitmap; a partial sum names
// the lowest worker in it; a reject has no elements. ValidHeader is for captures that truncate
// packets.
func (a Aggregation) ValidHeader() bool {
	if len(a) < AggregationLen || a.Version() != AggregationVersion || a[aggFlags]&^aggKnownFlags != 0 {
		return false
	}
	if a.Set() != int(a.Round()&1) || a.Type() < AggregationFloat32 || a.Type() > AggregationFloat16 ||
		a.Op() > AggregationMin ||
		a.Type() == AggregationFixed && a.Op() != AggregationSum {
		return false
	}
	fanIn, worker, bitmap := a.FanIn(), a.Worker(), a.Bitmap()
	if fanIn == 0 || fanIn > AggregationMaxFanIn || worker >= fanIn || bitmap>>(fanIn-1)>>1 != 0 {
		return false
	}
	switch a.Kind() {
	case AggregationUpdate:
		return bitmap == 1<<worker && a.Elements() > 0 && a.Code() == 0
	case AggregationPartial:
		return bits.TrailingZeros64(bitmap) == int(worker) && a.Elements() > 0 && a.Code() == 0
	case AggregationResult:
		return bitmap != 0 && a.Elements() > 0 && a.Code() == 0
	case AggregationReject:
		return a.Elements() == 0 && a.Code() != 0
	}
	return false
}

// Version is the version of the message. It may also be called on a message of another version,
// which is not valid, if that has at least AggregationLen bytes.
func (a Aggregation) Version() uint8 { return a[aggVersionKind] >> 4 }

// Kind is the kind of the message.
func (a Aggregation) Kind() AggregationKind { return AggregationKind(a[aggVersionKind] & 0x0F) }

// Flags are the flags of the message.
func (a Aggregation) Flags() uint8 { return a[aggFlags] }

// Set is the slot's set, 0 or 1, that the message belongs to: the version bit.
func (a Aggregation) Set() int { return int(a[aggFlags] & AggregationSet) }

// Type is the type of the elements.
func (a Aggregation) Type() AggregationType { return AggregationType(a[aggOpType] & 0x0F) }

// Op is the operation that combines the elements.
func (a Aggregation) Op() AggregationOp { return AggregationOp(a[aggOpType] >> 4) }

// Code is the reason of a reject.
func (a Aggregation) Code() AggregationCode { return AggregationCode(a[aggCode]) }

// Job is the job's number at the switch.
func (a Aggregation) Job() uint16 { return binary.BigEndian.Uint16(a[aggJob:]) }

// Epoch is the job's epoch.
func (a Aggregation) Epoch() uint16 { return binary.BigEndian.Uint16(a[aggEpoch:]) }

// Slot is the index in the job's pool.
func (a Aggregation) Slot() uint16 { return binary.BigEndian.Uint16(a[aggSlot:]) }

// Worker is the contributor, or the receiver of a result.
func (a Aggregation) Worker() uint8 { return a[aggWorker] }

// FanIn is the number of workers in the job.
func (a Aggregation) FanIn() uint8 { return a[aggFanIn] }

// Key is the worker's secret.
func (a Aggregation) Key() uint32 { return binary.BigEndian.Uint32(a[aggKey:]) }

// Round is the number of the chunk in the slot.
func (a Aggregation) Round() uint32 { return binary.BigEndian.Uint32(a[aggRound:]) }

// Offset is the first element's index in the tensor.
func (a Aggregation) Offset() uint32 { return binary.BigEndian.Uint32(a[aggOffset:]) }

// Bitmap has a bit for each worker whose elements are included.
func (a Aggregation) Bitmap() uint64 { return binary.BigEndian.Uint64(a[aggBitmap:]) }

// Elements is the number of elements.
func (a Aggregation) Elements() uint16 { return binary.BigEndian.Uint16(a[aggElements:]) }

// Scale is the exponent of fixed-point elements.
func (a Aggregation) Scale() int8 { return int8(a[aggScale]) }

// NextScale is the exponent that a worker requests, or the agreed one, for the slot's next chunk.
func (a Aggregation) NextScale() int8 { return int8(a[aggNextScale]) }

// Data are the elements as bytes.
func (a Aggregation) Data() []byte { return a[AggregationLen:] }

// DataLen is the length of the elements in bytes according to the header.
func (a Aggregation) DataLen() int { return a.Type().Size() * int(a.Elements()) }

// Fixed is element i in fixed point.
func (a Aggregation) Fixed(i int) int32 {
	return int32(binary.BigEndian.Uint32(a[AggregationLen+4*i:]))
}

// Float is element i as float32.
func (a Aggregation) Float(i int) float32 {
	return math.Float32frombits(binary.BigEndian.Uint32(a[AggregationLen+4*i:]))
}

// SetFixed sets element i in fixed point.
func (a Aggregation) SetFixed(i int, v int32) {
	binary.BigEndian.PutUint32(a[AggregationLen+4*i:], uint32(v))
}

// SetFloat sets element i as float32.
func (a Aggregation) SetFloat(i int, v float32) {
	binary.BigEndian.PutUint32(a[AggregationLen+4*i:], math.Float32bits(v))
}

// Fields are all fields of the header.
func (a Aggregation) Fields() AggregationFields {
	return AggregationFields{
		Kind:     a.Kind(),
		Flags:    a.Flags(),
		Type:     a.Type(),
		Op:       a.Op(),
		Code:     a.Code(),
		Job:      a.Job(),
		Epoch:    a.Epoch(),
		Slot:     a.Slot(),
		Worker:   a.Worker(),
		FanIn:    a.FanIn(),
		Key:      a.Key(),
		Round:    a.Round(),
		Offset:   a.Offset(),
		Bitmap:   a.Bitmap(),
		Elements: a.Elements(),
		Scale:    a.Scale(), NextScale: a.NextScale(),
	}
}

// Encode writes the header; it derives the set flag from the round. The caller writes the elements.
func (a Aggregation) Encode(f *AggregationFields) {
	_ = a[AggregationLen-1]
	a[aggVersionKind] = AggregationVersion<<4 | uint8(f.Kind&0x0F)
	a[aggFlags] = f.Flags&^AggregationSet | uint8(f.Round&1)
	a[aggOpType], a[aggCode] = uint8(f.Op)<<4|uint8(f.Type&0x0F), uint8(f.Code)
	binary.BigEndian.PutUint16(a[aggJob:], f.Job)
	binary.BigEndian.PutUint16(a[aggEpoch:], f.Epoch)
	binary.BigEndian.PutUint16(a[aggSlot:], f.Slot)
	a[aggWorker], a[aggFanIn] = f.Worker, f.FanIn
	binary.BigEndian.PutUint32(a[aggKey:], f.Key)
	binary.BigEndian.PutUint32(a[aggRound:], f.Round)
	binary.BigEndian.PutUint32(a[aggOffset:], f.Offset)
	binary.BigEndian.PutUint64(a[aggBitmap:], f.Bitmap)
	binary.BigEndian.PutUint16(a[aggElements:], f.Elements)
	a[aggScale], a[aggNextScale] = uint8(f.Scale), uint8(f.NextScale)
}

// AggregationKey returns the key of a worker in one epoch of a job: the first 32 bits of a SHA-256
// hash. The hash covers "railbed aggregation", the job's seed, which the plan draws, and job, epoch
// and worker in their sizes in messages. Switch and workers compute the same key.
func AggregationKey(seed uint64, job, epoch uint16, worker uint8) uint32 {
	text := [len(aggKeyPurpose) + 13]byte{}
	rest := text[copy(text[:], aggKeyPurpose):]
	binary.BigEndian.PutUint64(rest, seed)
	binary.BigEndian.PutUint16(rest[8:], job)
	binary.BigEndian.PutUint16(rest[10:], epoch)
	rest[12] = worker
	sum := sha256.Sum256(text[:])
	return binary.BigEndian.Uint32(sum[:])
}

// ToFixed converts a number to fixed point at a scale, rounded to the nearest integer, ties to
// even. If the integer does not fit an int32, ToFixed returns false and the nearest end of the
// range (0 for NaN).
func ToFixed(v float32, scale int8) (int32, bool) {
	scaled := math.RoundToEven(math.Ldexp(float64(v), -int(scale)))
	switch {
	case scaled > math.MaxInt32:
		return math.MaxInt32, false
	case scaled < math.MinInt32:
		return math.MinInt32, false
	case math.IsNaN(scaled):
		return 0, false
	}
	return int32(scaled), true
}

// FromFixed converts fixed point at a scale to a number.
func FromFixed(v int32, scale int8) float32 { return float32(math.Ldexp(float64(v), int(scale))) }

// ScaleFor returns the least scale at which the sum of fanIn numbers of magnitude at most limit
// fits an int32, whatever their signs. The limit must be finite and not negative.
func ScaleFor(limit float32, fanIn int) int8 {
	// |v| < 2^e, so the sum is below 2^e * fanIn, and 31 bits hold it if 2^e * fanIn <=
	// 2^(31+scale). The limit rounds to itself, since its 24 bits fit the 25 that 64 workers leave.
	// Smaller numbers do not round to more.
	_, e := math.Frexp(float64(limit))
	scale := e - 31
	for n := 1; n < fanIn; n *= 2 {
		scale++
	}
	return int8(min(max(scale, math.MinInt8), math.MaxInt8))
}
