package testbed

import "time"

// SetAnswerTimeout changes the limit of calls until it is restored.
func SetAnswerTimeout(limit time.Duration) (restore func()) {
	was := answerTimeout
	answerTimeout = limit
	return func() { answerTimeout = was }
}

// Unread is how many bytes of the command's channel have arrived and are not
// read.
func Unread(c *Cmd) int {
	c.channel.mu.Lock()
	defer c.channel.mu.Unlock()
	return c.channel.buffer.Len()
}

// DescriptorBudget is descriptorBudget.
var DescriptorBudget = descriptorBudget
