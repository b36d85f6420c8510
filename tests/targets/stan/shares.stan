data {
  int<lower=2> K;
  array[K] int<lower=0> counts;
  vector<lower=0>[K] alpha;
}
parameters {
  simplex[K] share;
}
model {
  share ~ dirichlet(alpha);
  counts ~ multinomial(share);
}
generated quantities {
  real largest = max(share);
}
