package collective

import "railbed/plan/schedule"

// Amount is the traffic from a rank to another: bytes of elements, and the messages that carry
// them. A message without bytes counts too: a rank sends one to permit others to write to its
// memory.
type Amount struct{ Bytes, Messages uint64 }

// Add adds another amount.
func (a *Amount) Add(b Amount) { a.Bytes, a.Messages = a.Bytes+b.Bytes, a.Messages+b.Messages }

// Amounts returns the traffic from a rank to each other rank in the given number of operations of
// one Runner, counted from the algorithm's actions.
func Amounts(a Algorithm, rank, operations int) []Amount {
	t := a.traits()
	amounts := make([]Amount, t.ranks)
	times, permissions := uint64(operations), uint64(operations)
	if t.eager {
		permissions = min(permissions, 1)
	}
	a.actions(rank, OutOfPlace, func(a action) {
		switch {
		case a.op == permit:
			amounts[a.peer].Messages += permissions
		case a.op == schedule.Send && a.message:
			amounts[a.peer].Add(Amount{uint64(a.source.len()) * times, times})
		}
	})
	return amounts
}
