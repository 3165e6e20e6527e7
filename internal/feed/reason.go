package feed

import "slices"

// reasons are the names of the reasons of records, by their numbers (softswitch.Reason).
var reasons = []string{
	"none",
	"tail",
	"buffer",
	"headroom",
	"nic-overrun",
	"express",
	"loss",
	"burst",
	"nth",
	"link-down",
	"fault",
	"no-route",
	"ttl-exceeded",
	"malformed",
	"not-for-us",
	"too-big",
	"martian",
	"unsupported",
	"reserved",
	"hairpin",
	"flood-limit",
	"memory",
	"aggregation",
	"red",
	"ecn-sharp",
	"pfc",
	"gfc",
	"refused",
}

// Reasons returns the names of all reasons, by their numbers. Number 0 stands for no reason.
func Reasons() []string { return slices.Clone(reasons) }
