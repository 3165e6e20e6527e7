package spec

import (
	"cmp"

	"railbed/internal/units"
)

// Messages sends messages between ranks that are no collective's, and reports how long
// they took. Which, and when, is decided from the file's seed before anything is sent.
type Messages struct {
	// Name is what checks call the step.
	Name string `yaml:"name" json:"name"`
	// Open are messages of published sizes that come whatever became of those before.
	Open *OpenMessages `yaml:"open,omitempty" json:"open,omitempty"`
	// Closed are messages of such sizes of which each rank has so many on their way.
	Closed *ClosedMessages `yaml:"closed,omitempty" json:"closed,omitempty"`
	// Cache is the transfer of key-value caches in serving with prefill and decode apart.
	Cache *CacheMessages `yaml:"cache,omitempty" json:"cache,omitempty"`
	// Blocks are blocks that are written to storage and read from it, so many at a time.
	Blocks *BlockMessages `yaml:"blocks,omitempty" json:"blocks,omitempty"`
	// Transport is tcp (default), the kernel's, rd, reliable datagrams by many paths, or
	// roce, reliable connections of RoCEv2.
	Transport string `yaml:"transport,omitempty" json:"transport,omitempty" jsonschema:"enum=tcp,enum=rd,enum=roce"`
	Carriage  `yaml:",inline"`
	// Background lets the next step start at once.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
	// Timeout ends the step as failed. Default 2m.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
}

// Sizing returns that of a Messages that has one, else nil.
func (m *Messages) Sizing() *Sizing {
	switch {
	case m.Open != nil:
		return &m.Open.Sizing
	case m.Closed != nil:
		return &m.Closed.Sizing
	}
	return nil
}

// Sizing is which sizes messages have.
type Sizing struct {
	// Sizes is where they were measured: web-search (Alizadeh et al., DCTCP, 2010),
	// data-mining (Greenberg et al., VL2, 2009), hadoop (Roy et al., 2015) or storage
	// (Alibaba's, 2019).
	Sizes string `yaml:"sizes,omitempty" json:"sizes,omitempty" jsonschema:"enum=web-search,enum=data-mining,enum=hadoop,enum=storage"`
	// File has sizes in place of these, as public simulators keep them: on each line a size
	// in bytes and the share of messages of at most that size, of 1 or of 100. Its path
	// counts from the file's folder.
	File string `yaml:"file,omitempty" json:"file,omitempty"`
	// Scale is what sizes are multiplied with, such as 0.01 for links that are so much
	// slower than those that they were measured on, or 1460 for sizes in packets. Default 1.
	Scale units.Factor `yaml:"scale,omitempty" json:"scale,omitzero"`
	// Count is how many there are in all.
	Count int `yaml:"count" json:"count" jsonschema:"minimum=1,maximum=100000"`
}

// OpenMessages come as a Poisson process at all ranks, each to any other rank.
type OpenMessages struct {
	Sizing `yaml:",inline"`
	// Load is the share of its link's rate that a rank sends on average.
	Load units.Ratio `yaml:"load" json:"load"`
}

// ClosedMessages are sent by all ranks, each to any other rank, the next one when one of the
// rank's has arrived.
type ClosedMessages struct {
	Sizing `yaml:",inline"`
	// Outstanding is how many a rank has on their way at once. Default 1.
	Outstanding int `yaml:"outstanding,omitempty" json:"outstanding,omitempty" jsonschema:"minimum=1,maximum=1024"`
}

// CacheMessages are the layers of prompts' caches: ranks in front prefill, the others
// decode, and each takes requests in turn.
type CacheMessages struct {
	// Prefill is how many ranks compute caches.
	Prefill int `yaml:"prefill" json:"prefill" jsonschema:"minimum=1,maximum=65535"`
	// Requests is how many come. Default: all of the trace, at most 10,000.
	Requests int `yaml:"requests,omitempty" json:"requests,omitempty" jsonschema:"minimum=1,maximum=10000"`
	// PerSecond is how many requests come in a second on average, as a Poisson process.
	PerSecond units.Factor `yaml:"per-second,omitempty" json:"per-second,omitzero"`
	// Trace is a file with when requests came and how many tokens their prompts had, in place
	// of per-second: a .csv with TIMESTAMP and ContextTokens, as Azure's LLM inference traces,
	// or Timestamp and Request tokens, as BurstGPT; or a .jsonl with timestamp and
	// input_length, as Mooncake's. Its path counts from the file's folder.
	Trace string `yaml:"trace,omitempty" json:"trace,omitempty"`
	// TimeScale is what the trace's times are multiplied by. Default 1.
	TimeScale units.Factor `yaml:"time-scale,omitempty" json:"time-scale,omitzero"`
	// Tokens are those of a prompt that takes layer-time and gives layer-bytes; the prompts
	// of a trace do in proportion to theirs. Default 1024.
	Tokens int `yaml:"tokens,omitempty" json:"tokens,omitempty" jsonschema:"minimum=1,maximum=16777216"`
	// Layers is how many a model has.
	Layers int `yaml:"layers" json:"layers" jsonschema:"minimum=1,maximum=1000"`
	// LayerTime is how long a rank computes one of a request.
	LayerTime units.Duration `yaml:"layer-time" json:"layer-time"`
	// LayerBytes is what the cache of one has.
	LayerBytes units.Bytes `yaml:"layer-bytes" json:"layer-bytes"`
	// SLO is the time to first token that a request is to have. The report says how many had
	// it, and the check attained bounds their share.
	SLO units.Duration `yaml:"slo,omitempty" json:"slo,omitempty"`
	// Decode is what happens to requests when their caches have come, which sends nothing.
	Decode *CacheDecode `yaml:"decode,omitempty" json:"decode,omitempty"`
	// Whole sends all layers when the last one has been computed. Default: each at once.
	Whole bool `yaml:"whole,omitempty" json:"whole,omitempty"`
}

// CacheDecode is how ranks decode: so many requests at once, each of which gets a token in each
// token-time. Others wait there.
type CacheDecode struct {
	// Slots is how many requests a rank decodes at once. Default 8.
	Slots int `yaml:"slots,omitempty" json:"slots,omitempty" jsonschema:"minimum=1,maximum=4096"`
	// TokenTime is how long each of them waits for its next token.
	TokenTime units.Duration `yaml:"token-time" json:"token-time"`
	// Tokens is how many a request gets, where no trace says it. Default 128.
	Tokens int `yaml:"tokens,omitempty" json:"tokens,omitempty" jsonschema:"minimum=1,maximum=1048576"`
	// SLO is the time for each token, waiting included, that a request is to have.
	SLO units.Duration `yaml:"slo,omitempty" json:"slo,omitempty"`
}

// BlockMessages are writes and reads of blocks by ranks at the storage of others, each at one
// of them at random. A read is a request of 64 bytes, and the block that answers it. Over rd and
// roce a block that fits into a packet is one packet that says itself where it goes (Miao et al.,
// "From Luna to Solar", 2022).
type BlockMessages struct {
	// Servers is how many ranks have storage: those in front.
	Servers int `yaml:"servers" json:"servers" jsonschema:"minimum=1,maximum=65535"`
	// Count is how many blocks each other rank writes and reads.
	Count int `yaml:"count" json:"count" jsonschema:"minimum=1,maximum=100000"`
	// Block is the size of one. Default 4KiB.
	Block units.Bytes `yaml:"block,omitempty" json:"block,omitempty"`
	// Reads is the share of the blocks that are read, drawn for each. Default 0%.
	Reads units.Ratio `yaml:"reads,omitempty" json:"reads,omitzero"`
	// SLO is how long a block is to take at most. The report says how many took longer, and the
	// check attained bounds the share of the others.
	SLO units.Duration `yaml:"slo,omitempty" json:"slo,omitempty"`
	// Outstanding is how many a rank has on their way at once. Default 8.
	Outstanding int `yaml:"outstanding,omitempty" json:"outstanding,omitempty" jsonschema:"minimum=1,maximum=1024"`
}

// HasSLO says that requests or blocks are to have something.
func (m *Messages) HasSLO() bool {
	k, b := m.Cache, m.Blocks
	return b != nil && b.SLO > 0 || k != nil && (k.SLO > 0 || k.Decode != nil && k.Decode.SLO > 0)
}

// mostRequests is how many a cache's prefill takes.
const mostRequests = 10_000

// FormulaMessages is that of the bytes of a Messages: what its schedule sends.
const FormulaMessages = "messages"

func (m *Messages) setDefaults() {
	m.Transport = cmp.Or(m.Transport, "tcp")
	m.Carriage.setDefaults()
	m.Timeout = cmp.Or(m.Timeout, defaultWorkloadTimeout)
	if o := m.Open; o != nil {
		o.Scale = cmp.Or(o.Scale, units.Factor{Num: 1, Den: 1})
	}
	if o := m.Closed; o != nil {
		o.Scale = cmp.Or(o.Scale, units.Factor{Num: 1, Den: 1})
		o.Outstanding = cmp.Or(o.Outstanding, 1)
	}
	if k := m.Cache; k != nil && k.Trace != "" {
		k.Requests = cmp.Or(k.Requests, mostRequests)
		k.TimeScale = cmp.Or(k.TimeScale, units.Factor{Num: 1, Den: 1})
		k.Tokens = cmp.Or(k.Tokens, 1024)
	}
	if k := m.Cache; k != nil && k.Decode != nil {
		k.Decode.Slots, k.Decode.Tokens = cmp.Or(k.Decode.Slots, 8), cmp.Or(k.Decode.Tokens, 128)
	}
	if b := m.Blocks; b != nil {
		b.Block = cmp.Or(b.Block, 4<<10)
		b.Outstanding = cmp.Or(b.Outstanding, 8)
	}
}

// messages checks what its types do not say.
func (c *checker) messages(at string, m *Messages, names map[string]string) {
	c.unique(at+".name", m.Name, names)
	c.positive(at+".timeout", uint64(m.Timeout), "a timeout of no time", "want a duration such as 2m")
	c.exactlyOne(at, *m, "open", "closed", "cache", "blocks")
	c.carriage(at, m.Transport, &m.Carriage)
	if m.Blocks != nil {
		c.nothingDroppable(at, &m.Carriage, "blocks, which are stored whole", "open, closed or cache")
	}
	if o := m.Open; o != nil {
		c.exactlyOne(at+".open", *o, "sizes", "file")
		if o.Load.IsZero() && c.t.Source.Has(at+".open.load") {
			c.report(at+".open.load", "a load of nothing", "want a share such as 40%")
		}
	}
	if o := m.Closed; o != nil {
		c.exactlyOne(at+".closed", *o, "sizes", "file")
	}
	if k := m.Cache; k != nil {
		c.exactlyOne(at+".cache", *k, "per-second", "trace")
		switch {
		case k.Trace == "" && k.Requests == 0 && !c.known(at+".cache.requests") && !c.broken(at+".cache"):
			c.report(at+".cache", at+".cache does not say how many requests come", "add requests: a number")
		case k.Trace == "" && (k.Tokens != 0 || k.TimeScale != units.Factor{}):
			c.report(at+".cache", at+".cache has tokens or time-scale, and no trace",
				"remove them, or add trace: a file")
		}
		c.between(at+".cache.layer-bytes", k.LayerBytes, 1, 1<<30)
	}
	if b := m.Blocks; b != nil {
		c.between(at+".blocks.block", b.Block, 1, 1<<30)
	}
}

// messages finds a step by its name.
func (t *Testbed) messages(name string) *Messages {
	for _, step := range t.Steps {
		if step.Messages != nil && step.Messages.Name == name {
			return step.Messages
		}
	}
	return nil
}
