package report

// Mixture is the result of the exchanges of a mixture of experts. Times are the slowest rank's, averaged
// over operations, in microseconds. Byte counts are the bytes that all ranks send to others in one
// exchange.
type Mixture struct {
	Experts int    `json:"experts"`        // number of experts
	Tokens  int    `json:"tokens"`         // of each rank
	Hidden  int    `json:"hidden"`         // values of a token
	TopK    int    `json:"top_k"`          // experts of each token
	Skew    string `json:"skew,omitempty"` // exponent of Zipf's law of the gate

	Dispatch        float64 `json:"dispatch_us"`       // mean time of a dispatch
	Combine         float64 `json:"combine_us"`        // mean time of a combine
	DispatchBytes   uint64  `json:"dispatch_bytes"`    // sent by all ranks in a dispatch
	CombineBytes    uint64  `json:"combine_bytes"`     // sent by all ranks in a combine
	TokensPerSecond float64 `json:"tokens_per_second"` // of all ranks, dispatched and combined
	// Hottest is the expert with the most tokens and Load its number of tokens. Times is Load
	// divided by the mean number of tokens of an expert.
	Hottest int     `json:"hottest"`
	Load    int     `json:"load"`       // tokens of the expert with most
	Times   float64 `json:"times_mean"` // this load by the mean of all experts
	// Error is the root mean square of the rounding errors of tokens, divided by the root mean
	// square of the exact values. Most is the greatest error of an element, as a fraction of the
	// error that FP8 and bfloat16 allow for that element.
	Error float64 `json:"error"`
	Most  float64 `json:"error_of_bound"` // largest error of a result, as a share of its bound
}
