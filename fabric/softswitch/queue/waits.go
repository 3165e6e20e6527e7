package queue

import "slices"

// Wait is an edge of the wait-for graph of a switch. The sender at Ingress is paused while packets
// from it wait at Egress, which is paused itself. So the sender waits, at that priority, for the
// receiver at Egress.
type Wait struct {
	Ingress, Egress int
	// Priority is the priority of both queues: the queue in which the packets wait and the queue
	// that is paused at the sender.
	Priority uint8
}

// Waits appends the switch's edges to a list. A deadlock is a cycle of these edges over all
// switches that lasts longer than any pause. Edges of two switches are joined if the egress of one
// and the ingress of the other are the ends of a link. Waits examines every packet at a paused
// queue, and is meant for occasional calls.
func (m *Memory) Waits(list []Wait) []Wait {
	for egress, p := range m.ports {
		if p == nil {
			continue
		}
		for left := p.paused & p.backlog & m.pfc; left != 0; left &= left - 1 {
			q := left.first()
			begin := len(list)
			for one := p.head[q]; one != nil; one = one.Next {
				in := m.account(one.Ingress)
				if in == nil || m.seen[one.Ingress] || !in.paused.Has(q) {
					continue
				}
				m.seen[one.Ingress] = true
				list = append(list, Wait{int(one.Ingress), egress, q})
			}
			for _, edge := range list[begin:] {
				m.seen[edge.Ingress] = false
			}
		}
	}
	return list
}

// Cycles finds cycles among edges between numbered places. No two of them have a place in common,
// and every other cycle has a place in common with one of them. Each cycle lists its places,
// starting with the smallest; each place waits for the next. The same edges in the same order give
// the same cycles.
func Cycles(edges [][2]int) (cycles [][]int) {
	next := map[int][]int{}
	for _, e := range edges {
		next[e[0]] = append(next[e[0]], e[1])
	}
	const open, done = 1, 2
	state := map[int]int{}
	for _, e := range edges {
		if state[e[0]] != 0 {
			continue
		}
		// A depth-first search without recursion: path holds the open places, at the number of
		// their edges already followed.
		path, at := []int{e[0]}, []int{0}
		state[e[0]] = open
		for len(path) > 0 {
			top := len(path) - 1
			from := path[top]
			if at[top] == len(next[from]) {
				state[from] = done
				path, at = path[:top], at[:top]
				continue
			}
			to := next[from][at[top]]
			at[top]++
			switch state[to] {
			case open:
				// The search continues as if the cycle's places did not exist.
				begin := slices.Index(path, to)
				for _, place := range path[begin:] {
					state[place] = done
				}
				cycles = append(cycles, fromSmallest(path[begin:]))
				path, at = path[:begin], at[:begin]
			case 0:
				state[to] = open
				path, at = append(path, to), append(at, 0)
			}
		}
	}
	return cycles
}

// fromSmallest returns a cycle rotated to begin with its smallest place.
func fromSmallest(cycle []int) []int {
	begin := slices.Index(cycle, slices.Min(cycle))
	return slices.Concat(cycle[begin:], cycle[:begin])
}
