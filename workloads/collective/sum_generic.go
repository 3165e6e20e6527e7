//go:build !amd64

package collective

// sum sets dst[i] = a[i] + b[i]. All have the length of dst; dst may be a or b.
func sum(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}
