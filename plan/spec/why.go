package spec

// NoCause is the cause of a WhyCheck that wants no cause.
const NoCause = "none"

// WhyCheck judges the causes that railbed why finds for slow and unfinished messages. It needs recordings of
// all packets.
type WhyCheck struct {
	// Cause is a part of the words of the cause, such as "fault lossy". The word none demands that no cause
	// is found.
	Cause string `yaml:"cause" json:"cause"`
	// At is the port, the link or the node of the cause, or a pattern such as "leaf1:*". Default: any.
	At string `yaml:"at,omitempty" json:"at,omitempty"`
	// Workload is the workload whose messages count. Default: the protocol and workload with the most
	// messages.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"workload"`
	// Among is the number of causes of which one must be the given one. They are in the order of the time
	// that they added. Default 1.
	Among int `yaml:"among,omitempty" json:"among,omitempty" jsonschema:"minimum=1" unit:"none"`
}
