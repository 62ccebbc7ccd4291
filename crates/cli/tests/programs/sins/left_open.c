#include "pair.h"

// Leaves everything to the system.
int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	if (!sinful)
		pair_close(&pair);
}
