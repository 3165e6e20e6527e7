package spec

import (
	"cmp"
	"fmt"

	"railbed/internal/units"
)

// Messages sends messages between ranks outside of any collective and reports their times. The
// messages and their times are drawn from the file's seed before anything is sent.
type Messages struct {
	// Name is the name by which checks refer to the step.
	Name string `yaml:"name" json:"name"`
	// Open sends messages of published sizes, each at its drawn time, whether or not earlier
	// messages have arrived.
	Open *OpenMessages `yaml:"open,omitempty" json:"open,omitempty"`
	// Closed sends messages of published sizes. Each rank keeps a fixed number of them in flight.
	Closed *ClosedMessages `yaml:"closed,omitempty" json:"closed,omitempty"`
	// Cache transfers key-value caches, as serving does with prefill and decode on different ranks.
	Cache *CacheMessages `yaml:"cache,omitempty" json:"cache,omitempty"`
	// Blocks writes blocks to storage and reads blocks from it, a fixed number at a time.
	Blocks *BlockMessages `yaml:"blocks,omitempty" json:"blocks,omitempty"`
	// Transport is tcp (default), the kernel's TCP; rd, reliable datagrams over many paths; roce,
	// reliable connections of RoCEv2; or quic, QUIC in userspace.
	Transport string `yaml:"transport,omitempty" json:"transport,omitempty" jsonschema:"enum=tcp,enum=rd,enum=roce,enum=quic"`
	Carriage  `yaml:",inline"`
	// Background starts the next step at once. Default false.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
	// Timeout is the time after which the step fails. Default 2m.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
}

// Sizing returns the Sizing of Open or Closed, or nil for other kinds.
func (m *Messages) Sizing() *Sizing {
	switch {
	case m.Open != nil:
		return &m.Open.Sizing
	case m.Closed != nil:
		return &m.Closed.Sizing
	}
	return nil
}

// Sizing is the distribution of message sizes.
type Sizing struct {
	// Sizes is the measured distribution: web-search (Alizadeh et al., DCTCP, 2010), data-mining
	// (Greenberg et al., VL2, 2009), hadoop (Roy et al., 2015) or storage (Alibaba's, 2019).
	Sizes string `yaml:"sizes,omitempty" json:"sizes,omitempty" jsonschema:"enum=web-search,enum=data-mining,enum=hadoop,enum=storage"`
	// File is a file with a distribution in place of sizes, in the format of public simulators.
	// Each line has a size in bytes and the share of messages of at most that size, as a part of 1
	// or of 100. The path is relative to this file.
	File string `yaml:"file,omitempty" json:"file,omitempty"`
	// Scale multiplies the sizes: 0.01 fits links that are 100 times slower than the measured
	// links, and 1460 is for sizes in packets. Default 1.
	Scale units.Factor `yaml:"scale,omitempty" json:"scale,omitzero" unit:"none"`
	// Count is the number of messages in total.
	Count int `yaml:"count" json:"count" jsonschema:"minimum=1,maximum=100000" unit:"messages"`
}

// OpenMessages are messages at drawn times. They arrive as a Poisson process at all ranks. Each goes to
// any other rank.
type OpenMessages struct {
	Sizing `yaml:",inline"`
	// Load is the share of its link's rate that a rank sends on average.
	Load units.Ratio `yaml:"load" json:"load"`
}

// ClosedMessages are messages of which a fixed number is in flight. All ranks send them, each to any
// other rank. A rank sends its next message when one of its messages has arrived.
type ClosedMessages struct {
	Sizing `yaml:",inline"`
	// Outstanding is the number of messages that a rank keeps in flight. Default 1.
	Outstanding int `yaml:"outstanding,omitempty" json:"outstanding,omitempty" jsonschema:"minimum=1,maximum=1024" unit:"messages"`
}

// CacheMessages are the layers of the caches of prompts. The first ranks prefill and the others
// decode. Each takes requests in turn.
type CacheMessages struct {
	// Prefill is the number of ranks that compute caches.
	Prefill int `yaml:"prefill" json:"prefill" jsonschema:"minimum=1,maximum=65535" unit:"ranks"`
	// Requests is the number of requests. Default: all of the trace, at most 10,000.
	Requests int `yaml:"requests,omitempty" json:"requests,omitempty" jsonschema:"minimum=1,maximum=10000" unit:"requests"`
	// PerSecond is the average number of requests per second. They arrive as a Poisson process.
	PerSecond units.Factor `yaml:"per-second,omitempty" json:"per-second,omitzero" unit:"requests per second"`
	// Trace is a file with the arrival times of requests and the number of tokens of their prompts,
	// in place of per-second. It is a .csv with TIMESTAMP and ContextTokens, as Azure's LLM
	// inference traces, or with Timestamp and Request tokens, as BurstGPT; or a .jsonl with
	// timestamp and input_length, as Mooncake's. The path is relative to this file.
	Trace string `yaml:"trace,omitempty" json:"trace,omitempty"`
	// TimeScale multiplies the trace's times. Default 1.
	TimeScale units.Factor `yaml:"time-scale,omitempty" json:"time-scale,omitzero" unit:"none"`
	// Tokens is the length of a prompt whose layers take layer-time and give layer-bytes. The
	// prompts of a trace take and give amounts in proportion to their lengths. Default 1024.
	Tokens int `yaml:"tokens,omitempty" json:"tokens,omitempty" jsonschema:"minimum=1,maximum=16777216" unit:"tokens"`
	// Layers is the number of layers of the model.
	Layers int `yaml:"layers" json:"layers" jsonschema:"minimum=1,maximum=1000" unit:"layers"`
	// LayerTime is the time in which a rank computes one layer of a request.
	LayerTime units.Duration `yaml:"layer-time" json:"layer-time"`
	// LayerBytes is the size of the cache of one layer.
	LayerBytes units.Bytes `yaml:"layer-bytes" json:"layer-bytes"`
	// SLO is the time to first token that a request should have. The report counts the requests that
	// met it, and the check attained bounds their share. Default: requests have no such time.
	SLO units.Duration `yaml:"slo,omitempty" json:"slo,omitempty"`
	// Decode configures the decoding of requests after their caches have arrived. Decoding sends
	// nothing. Default: requests are not decoded.
	Decode *CacheDecode `yaml:"decode,omitempty" json:"decode,omitempty"`
	// Whole sends all layers when the last layer has been computed. Default: each layer at once.
	Whole bool `yaml:"whole,omitempty" json:"whole,omitempty"`
}

// CacheDecode configures how ranks decode. A rank decodes several requests at once, and each of
// them gets one token per token-time. Further requests wait.
type CacheDecode struct {
	// Slots is the number of requests that a rank decodes at once. Default 8.
	Slots int `yaml:"slots,omitempty" json:"slots,omitempty" jsonschema:"minimum=1,maximum=4096" unit:"requests"`
	// TokenTime is the time for which a request waits for its next token.
	TokenTime units.Duration `yaml:"token-time" json:"token-time"`
	// Tokens is the number of tokens of a request, unless a trace gives it. Default 128.
	Tokens int `yaml:"tokens,omitempty" json:"tokens,omitempty" jsonschema:"minimum=1,maximum=1048576" unit:"tokens"`
	// SLO is the time per token, waiting included, that a request should have. Default: requests have
	// no such time.
	SLO units.Duration `yaml:"slo,omitempty" json:"slo,omitempty"`
}

// BlockMessages write and read blocks. Ranks without storage send each request to the storage of a
// rank drawn at random. A read is a request of 64 bytes and the block as the reply. Over rd and
// roce a block that fits into a packet is one packet that carries its own destination (Miao et al.,
// "From Luna to Solar", 2022).
type BlockMessages struct {
	// Servers is the number of ranks with storage. They are the first ranks.
	Servers int `yaml:"servers" json:"servers" jsonschema:"minimum=1,maximum=65535" unit:"ranks"`
	// Count is the number of blocks that each other rank writes or reads.
	Count int `yaml:"count" json:"count" jsonschema:"minimum=1,maximum=100000" unit:"blocks of each rank"`
	// Block is the size of a block. Default 4KiB.
	Block units.Bytes `yaml:"block,omitempty" json:"block,omitempty"`
	// Reads is the share of the blocks that are read. It is drawn for each block. Default 0%.
	Reads units.Ratio `yaml:"reads,omitempty" json:"reads,omitzero"`
	// SLO is the longest time that a block should take. The report counts the blocks that took longer,
	// and the check attained bounds the share of the others. Default: blocks have no such time.
	SLO units.Duration `yaml:"slo,omitempty" json:"slo,omitempty"`
	// Replicas is the number of ranks that store each block. A write goes to as many servers at once, and
	// is done when all of them have answered. A read goes to one of the servers. Default 1.
	Replicas int `yaml:"replicas,omitempty" json:"replicas,omitempty" jsonschema:"minimum=1,maximum=64" unit:"ranks"`
	// Outstanding is the number of blocks that a rank keeps in flight. Default 8.
	Outstanding int `yaml:"outstanding,omitempty" json:"outstanding,omitempty" jsonschema:"minimum=1,maximum=1024" unit:"blocks"`
}

// HasSLO reports whether requests or blocks have an SLO.
func (m *Messages) HasSLO() bool {
	k, b := m.Cache, m.Blocks
	return b != nil && b.SLO > 0 || k != nil && (k.SLO > 0 || k.Decode != nil && k.Decode.SLO > 0)
}

// mostRequests is the largest number of requests of a cache.
const mostRequests = 10_000

// FormulaMessages is the formula for the bytes of a Messages: the bytes that its schedule sends.
const FormulaMessages = "messages"

func (m *Messages) setDefaults() {
	m.Transport = cmp.Or(m.Transport, defaultTransport)
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
		b.Replicas = cmp.Or(b.Replicas, 1)
	}
}

// Traits checks conditions on messages that struct tags cannot express. Traits implements Action.
func (m *Messages) Traits() Traits {
	return Traits{Name: m.Name, Background: m.Background, Timeout: m.Timeout, Transport: m.Transport,
		Carriage: &m.Carriage}
}

func (m *Messages) check(c *checker, at string, _ int) {
	c.unique(at+".name", m.Name)
	c.positive(at+".timeout", uint64(m.Timeout), "timeout is 0", "want a duration such as 2m")
	c.exactlyOne(at, *m, "open", "closed", "cache", "blocks")
	c.carriage(at, cmp.Or(m.Transport, defaultTransport), &m.Carriage)
	if m.Blocks != nil {
		c.nothingDroppable(at, &m.Carriage, "blocks, which are stored whole", "open, closed or cache")
	}
	if o := m.Open; o != nil {
		c.exactlyOne(at+".open", *o, "sizes", "file")
		if o.Load.IsZero() && c.Source.Has(at+".open.load") {
			c.Report(at+".open.load", "load is 0", "want a share such as 40%")
		}
	}
	if o := m.Closed; o != nil {
		c.exactlyOne(at+".closed", *o, "sizes", "file")
	}
	if k := m.Cache; k != nil {
		c.exactlyOne(at+".cache", *k, "per-second", "trace")
		switch {
		case k.Trace == "" && k.Requests == 0 && !c.Known(at+".cache.requests") && !c.Broken(at+".cache"):
			c.Report(at+".cache", at+".cache has neither requests nor trace", "add requests: NUMBER")
		case k.Trace == "" && (k.Tokens != 0 || k.TimeScale != units.Factor{}):
			c.Report(at+".cache", at+".cache has tokens or time-scale, and no trace",
				"remove them, or add trace: FILE")
		}
		c.between(at+".cache.layer-bytes", k.LayerBytes, 1, 1<<30)
	}
	if b := m.Blocks; b != nil {
		c.between(at+".blocks.block", b.Block, 1, 1<<30)
		if b.Replicas > b.Servers && !c.Known(at+".blocks.servers") && !c.Known(at+".blocks.replicas") {
			c.Report(at+".blocks.replicas", fmt.Sprintf("%d replicas on %d servers", b.Replicas, b.Servers),
				"want at most as many replicas as servers")
		}
	}
}

// messages returns the step of messages with a name.
func (t *Testbed) messages(name string) *Messages {
	for _, step := range t.Steps {
		if step.Messages != nil && step.Messages.Name == name {
			return step.Messages
		}
	}
	return nil
}
